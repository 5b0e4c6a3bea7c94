#include "base/options.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"

namespace espalier {
namespace {

using Words = std::vector<std::string>;
enum class Decay { kLinear, kCosine };

// A table with one row of each kind, and what it was told.
struct Example {
  int64_t layers = 2;
  double rate = 0.5;
  bool bf16 = false, fusion = true, eval_only = false;
  std::string load;
  std::optional<int64_t> batch;
  Words data;
  std::vector<int64_t> ramp;
  Decay style = Decay::kLinear;
  OptionTable table{"espalier example", "An example."};
  Problems problems;

  Example() {
    table.group("size");
    table.add("--num-layers", layers, "transformer blocks").minimum(1).maximum(1000).common();
    table.add("--global-batch-size", batch, "samples of a step");
    table.group("rates");
    table.add("--lr", rate, "learning rate").minimum(0);
    table.add_choice("--lr-decay-style", style, {{"linear", Decay::kLinear}, {"cosine", Decay::kCosine}}, "shape");
    table.group("size");
    table.add("--bf16", bf16, "compute in bfloat16");
    table.add_negative("--no-bias-gelu-fusion", fusion, "erf gelu");
    table.add("--load", load, "folder").alias("--load-from");
    table.add("--data-path", data, "weights and prefixes");
    table.add("--rampup-batch-size", ramp, "start, increment, samples").count(3);
    table.add_truth("--eval-only", eval_only, "no training");
    table.add_without_effect("--mmap-warmup", OptionTable::Takes::kFlag, "files are mapped");
    table.add_refused("--warmup", OptionTable::Takes::kOne, "use --lr-warmup-fraction");
    table.allow_recipes();
  }
  const Words& parse(const Words& arguments) {
    table.say_notes(false);
    table.parse(arguments, problems);
    return problems.messages();
  }
  const Words& parse_toml(const std::string& text) {
    table.parse_toml(text, "r.toml", problems);
    return problems.messages();
  }
};

TEST(Options, DashesUnderscoresAndEqualSignsAreOneSpelling) {
  Example e;
  EXPECT_EQ(e.parse({"--num_layers", "1_0", "--lr=1e-3", "--lr_decay-style", "cosine", "--bf16", "--load_from=a=b"}),
            Words{});
  EXPECT_EQ(e.layers, 10);
  EXPECT_EQ(e.rate, 1e-3);
  EXPECT_EQ(e.style, Decay::kCosine);
  EXPECT_TRUE(e.bf16);
  EXPECT_EQ(e.load, "a=b");
}

TEST(Options, ListTakesAllWordsUpToTheNextOption) {
  Example e;
  EXPECT_EQ(e.parse({"--data-path", "0.3", "a", "-0.7", "b", "--rampup-batch-size", "2", "+2", "1_000", "--bf16"}),
            Words{});
  EXPECT_EQ(e.data, (Words{"0.3", "a", "-0.7", "b"}));
  EXPECT_EQ(e.ramp, (std::vector<int64_t>{2, 2, 1000}));
  EXPECT_TRUE(e.bf16);
}

TEST(Options, TwoNamesOfAnOptionMustAgree) {
  Example same, other, again;
  EXPECT_EQ(same.parse({"--load", "a", "--load-from", "a"}), Words{});
  EXPECT_EQ(other.parse({"--load_from", "a", "--load", "b"}),
            Words{"--load-from a and --load b are the same option, and differ; give one"});
  EXPECT_EQ(again.parse({"--load", "a", "--load=b", "--load-from", "b"}), Words{});
}

TEST(Options, RepeatedOptionReplacesAlsoLists) {
  Example e;
  testing::internal::CaptureStderr();
  e.table.parse({"--data-path", "a", "b", "--num-layers", "3", "--data-path", "c", "--num-layers", "4"}, e.problems);
  EXPECT_EQ(e.problems.messages(), Words{});
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: --data-path is given twice; only the last one counts: c\n");
  EXPECT_EQ(e.data, Words{"c"});
  EXPECT_EQ(e.layers, 4);
}

TEST(Options, WordWithBlankIsAValueEvenIfItBeginsWithADash) {
  Example e;
  EXPECT_EQ(e.parse({"--data-path", "- odd name", "--load", "-"}), Words{});
  EXPECT_EQ(e.data, Words{"- odd name"});
  EXPECT_EQ(e.load, "-");
}

TEST(Options, NegativeNumberWithExponentNeedsTheEqualSign) {
  Example e;
  EXPECT_EQ(e.parse({"--lr", "-1e-8"}), (Words{"--lr expects a value (a negative one in the form --lr=-1e-8)",
                                               "unknown option -1e-8: `espalier example --help` lists what there is"}));
  Example f;
  EXPECT_EQ(f.parse({"--lr=-1e-8"}), Words{"--lr -1e-8 (command line) is below the smallest value, 0"});
}

TEST(Options, FlagsCanBeTakenBack) {
  Example e;
  EXPECT_EQ(e.parse({"--no-bias-gelu-fusion", "--bf16", "--bf16=false"}), Words{});
  EXPECT_FALSE(e.fusion);
  EXPECT_FALSE(e.bf16);
}

TEST(Options, TruthTakesAnyTextForTrueAsPythonDoes) {
  Example e;
  EXPECT_EQ(e.parse({"--eval-only", "False"}), Words{});
  EXPECT_TRUE(e.eval_only);
  EXPECT_EQ(e.parse({"--eval-only="}), Words{});
  EXPECT_FALSE(e.eval_only);
}

TEST(Options, EveryProblemIsReportedInOneGo) {
  Example e;
  EXPECT_EQ(e.parse({"--num-layer", "2", "--lr", "fast", "--lr-decay-style", "cosin", "--num-layers", "1e3",
                     "--rampup-batch-size", "1", "2", "--bf16", "yes", "--warmup", "3", "--global-batch-size"}),
            (Words{"unknown option --num-layer; did you mean --num-layers?", "--lr fast (command line) is not a number",
                   "--lr-decay-style cosin (command line) is not one of linear, cosine; did you mean cosine?",
                   "--num-layers 1e3 (command line) is not an integer; write 1000",
                   "--rampup-batch-size (command line) takes 3 values, found 2",
                   "unexpected word yes: --bf16 is a switch: alone it is on; leave the word out",
                   "--warmup (command line) is not supported: use --lr-warmup-fraction",
                   "--global-batch-size expects a value (a negative one in the form --global-batch-size=-1e-8)"}));
  EXPECT_EQ(e.layers, 2) << "bad words leave the variable alone";
  try {
    Example().table.parse({"--num-layers", "0", "word"});
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_STREQ(error.what(),
                 "2 problems:\n  - --num-layers 0 (command line) is below the smallest value, 1\n"
                 "  - unexpected word word: options begin with --");
  }
}

TEST(Options, NoAbbreviationsUnlessAllowed) {
  Example e;
  EXPECT_EQ(e.parse({"--num", "3"}), Words{"unknown option --num: `espalier example --help` lists what there is"});
  Example f;
  f.table.allow_prefixes();
  EXPECT_EQ(f.parse({"--num", "3", "--lr-d", "cosine", "--lo", "x"}), Words{});
  EXPECT_EQ(f.layers, 3);
  EXPECT_EQ(f.load, "x") << "two spellings of one row are no ambiguity";
  Example g;
  g.table.allow_prefixes();
  EXPECT_EQ(g.parse({"--l", "3"}),
            Words{"option --l is the beginning of --load, --lr, --lr-decay-style; write one of them in full"});
}

TEST(Options, RequiredRowsAndWords) {
  Words inputs, files;
  const auto build = [&](OptionTable& table) {
    table.add("--input", inputs, "JSONL files").required();
    table.positional("FILE", files, "what to read", 1, 2);
  };
  OptionTable table("p", "s"), other("p", "s");
  build(table);
  build(other);
  Problems problems, none;
  table.parse({"a", "b", "c", "--input"}, problems);
  EXPECT_EQ(problems.messages(),
            (Words{"expected 1 to 2 FILE (what to read), found 3: a b c", "--input is required: JSONL files"}));
  other.parse({"--input", "x", "--", "--odd"}, none);
  EXPECT_EQ(none.messages(), Words{});
  EXPECT_EQ(files, Words{"--odd"});
}

TEST(Options, RecipeIsReadWithItsLinesAndFlagsWinOverIt) {
  std::string pattern = std::filesystem::temp_directory_path() / "espalier_options_test.XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const std::filesystem::path folder = pattern;
  write_file_atomically(folder / "a.toml", "[any.table]\nnum_layers = 7\nlr = 1\nbf16 = true\n");
  write_file_atomically(folder / "b.toml", "num_layers = 8\ndata_path = [0.5, \"a\"]\n");
  const std::string a = folder / "a.toml", b = folder / "b.toml";
  Example e;
  EXPECT_EQ(e.parse({"--lr", "2", "--recipe", a, b}), Words{});
  EXPECT_EQ(e.layers, 8);
  EXPECT_EQ(e.rate, 2);
  EXPECT_TRUE(e.bf16);
  EXPECT_EQ(e.data, (Words{"0.5", "a"}));
  EXPECT_EQ(e.table.origin("--num-layers"), "--num-layers 8 (" + b + ":1)");
  EXPECT_EQ(e.table.origin("--lr"), "--lr 2.0 (command line)");
  EXPECT_EQ(e.table.origin("--load"), "--load (default)");
  std::filesystem::remove_all(folder);
}

TEST(Options, RecipeProblemsNameFileAndLine) {
  Example e;
  EXPECT_EQ(
      e.parse_toml("num_layer = 2\n[a]\nlr_decay_style = \"cosinus\"\nbf16 = 1\nnum_layers = 4.0\n[b]\nbf16 = true\n"
                   "load = [\"a\"]\nrecipe = [\"x\"]\nlr = true\nrampup_batch_size = [1, 2020-01-01, 2]\n"),
      (Words{
          "r.toml:1: unknown key num_layer; did you mean num_layers?",
          "--lr-decay-style cosinus (r.toml:3) is not one of linear, cosine; did you mean cosine?",
          "r.toml:4: bf16 is a flag: expected true or false", "--num-layers 4.0 (r.toml:5) is not an integer; write 4",
          "r.toml:7: bf16 was given before, in line 4", "r.toml:8: load takes one value, found a list",
          "r.toml:9: recipe belongs on the command line only, as --recipe", "r.toml:10: lr expects a value, found true",
          "r.toml:11: rampup_batch_size holds an element that is neither text nor a number"}));
  Example f;
  ASSERT_EQ(f.parse_toml("lr = 1\nlr = \n").size(), 1U);
  EXPECT_EQ(f.problems.messages()[0],
            "r.toml:2: not TOML from column 6 on: lr = \n    expected KEY = VALUE (text in \"quotes\"), [TABLE] or # "
            "comment");
}

// A word in two parts, as its value name says, may be a table with these keys.
TEST(Options, AWordInPartsIsATableInARecipe) {
  Words stages;
  Example e;
  e.table.add("--data-stages", stages, "mixtures").value_name("START: BLEND");
  EXPECT_EQ(e.parse_toml("data_stages = [\"1: a\"]\n"), Words{});
  EXPECT_EQ(stages, Words{"1: a"});
  Words others;
  Example f;
  f.table.add("--data-stages", others, "mixtures").value_name("START: BLEND");
  EXPECT_EQ(f.parse_toml("[data]\nlr = 1\n[[data.data_stages]]\nstart = 5_000\nblend = [\"0.5 a\", \"0.5 b\"]\n"
                         "[[data.data_stages]]\nblend = \"c\"\nstart = \"9 tokens\"\n"),
            Words{});
  EXPECT_EQ(others, (Words{"5000: 0.5 a, 0.5 b", "9 tokens: c"}));
  const auto wrong = [](const std::string& table) {
    Words words;
    Example g;
    g.table.add("--data-stages", words, "mixtures").value_name("START: BLEND");
    return g.parse_toml("[[data_stages]]\n" + table);
  };
  EXPECT_EQ(wrong("start = 5\n"), Words{"r.toml:1: data_stages holds a table without the key blend"});
  EXPECT_EQ(wrong("start = 5\nblend = [1979-05-27]\n"),
            Words{"r.toml:1: data_stages holds a table whose blend is neither text nor a number, nor a list of them"});
  EXPECT_EQ(wrong("start = 5\nblends = \"a\"\nblend = \"a\"\n"),
            Words{"r.toml:1: data_stages holds a table with the key blends; expected start and blend"});
  EXPECT_EQ(Example().parse_toml("[[data_path]]\nstart = 5\n"),
            Words{"r.toml:1: data_path holds a table, and takes text or numbers"});
}

// What parse() throws.
std::string refusal(OptionTable& table, const Words& arguments) {
  try {
    Problems problems;
    table.parse(arguments, problems);
    problems.raise();
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(Options, RecipeThatCannotBeReadIsTheOnlyProblem) {
  const auto folder = std::filesystem::temp_directory_path() / "espalier_broken_recipe_test";
  std::filesystem::create_directories(folder);
  const std::string broken = folder / "broken.toml", keys = folder / "keys.toml";
  write_file_atomically(broken, "[size]\nnum_layers == 2\n");
  write_file_atomically(keys, "input_file = 3\n");
  const auto told = [](const Words& arguments) {
    Words input;
    OptionTable table("p", "s");
    table.add("--input-files", input, "JSONL files").required();
    table.allow_recipes();
    return refusal(table, arguments);
  };
  EXPECT_EQ(told({"--recipe", folder / "none.toml"}),
            "--recipe: there is no file '" + (folder / "none.toml").string() + "'");
  EXPECT_EQ(told({"--recipe", folder}), "--recipe: '" + folder.string() + "' is a folder; name the .toml file");
  EXPECT_EQ(told({"--recipe", "/dev/zero"}), "--recipe: '/dev/zero' is a pipe or a device, not a file");
  EXPECT_EQ(told({"--recipe", broken}), broken +
                                            ":2: not TOML from column 13 on: num_layers == 2\n    expected KEY = VALUE "
                                            "(text in \"quotes\"), [TABLE] or # comment");
  EXPECT_EQ(told({"--recipe", keys}), keys + ":1: unknown key input_file; did you mean input_files?")
      << "that the option is missing follows from its misspelling";
  EXPECT_EQ(told({"--recipe", broken, "--inputt"}).find("2 problems:"), 0U) << "flags have problems of their own";
  std::filesystem::remove_all(folder);
}

TEST(Options, NamesOfOtherProgramsAreToldTheNameHere) {
  const auto told = [](const Words& arguments, const std::string& recipe = "") {
    Example example;
    example.table.known_elsewhere({"--learning-rate", "--max-lr"}, "--lr");
    example.table.known_elsewhere({"--epochs"}, "count steps: --num-layers");
    example.table.unknown_options_mean("see the page");
    if (!recipe.empty()) return example.parse_toml(recipe);
    return example.parse(arguments);
  };
  EXPECT_EQ(told({"--learning_rate", "1"}), Words{"unknown option --learning_rate: here it is --lr"});
  EXPECT_EQ(told({"--epochs=3"}), Words{"unknown option --epochs: count steps: --num-layers"});
  EXPECT_EQ(told({"--zebra"}), Words{"unknown option --zebra: see the page"});
  EXPECT_EQ(told({"--num-layer", "3"}), Words{"unknown option --num-layer; did you mean --num-layers?"});
  EXPECT_EQ(told({}, "[a]\nmax_lr = 1"), Words{"r.toml:2: unknown key max_lr: here it is --lr"});
}

TEST(Options, WhatWasRefusedOrMisnamedIsUnclear) {
  const auto is_unclear = [](const Words& arguments, const char* option) {
    Example example;
    example.table.known_elsewhere({"--learning-rate"}, "--lr");
    example.parse(arguments);
    return example.table.find(option)->unclear();
  };
  for (const Words& words : {Words{"--num-layers", "x"}, {"--num-layers", "0"}, {"--num-layers"}, {"--num-layer", "2"}})
    EXPECT_TRUE(is_unclear(words, "--num-layers")) << words.back();
  EXPECT_TRUE(is_unclear({"--learning-rate", "1"}, "--lr"));
  EXPECT_FALSE(is_unclear({"--num-layers", "3"}, "--num-layers"));
  EXPECT_FALSE(is_unclear({"--num-layers", "x", "--num-layers", "3"}, "--num-layers"));
  EXPECT_FALSE(is_unclear({}, "--num-layers"));
}

TEST(Options, ARecipeInAnotherEncodingIsToldHow) {
  EXPECT_EQ(Example().parse_toml(std::string("\xff\xfen\0u\0", 6)),
            Words{"r.toml: is UTF-16; expected UTF-8: iconv -f UTF-16 -t UTF-8 r.toml > NEW converts it"});
  EXPECT_EQ(Example().parse_toml("f\xfcr x").at(0).substr(0, 40), "r.toml:1: not TOML from column 1 on: f?r");
}

TEST(Options, WordsThatAreNoValueAreToldWhatWorks) {
  const auto told = [](const Words& arguments) { return Example().parse(arguments); };
  EXPECT_EQ(told({"--bf16", "false"}),
            Words{"unexpected word false: --bf16 is a switch: leave it out, or write --bf16=false"});
  EXPECT_EQ(told({"--bf16", "0"}), Words{"unexpected word 0: --bf16 is a switch: leave it out, or write --bf16=false"});
  EXPECT_EQ(told({"--bf16", "true"}), Words{"unexpected word true: --bf16 is a switch: alone it is on; leave the word "
                                            "out"});
  EXPECT_EQ(told({"--no-bf16"}),
            Words{"unknown option --no-bf16: --bf16 is a switch: leave it out, or write --bf16=false"});
  EXPECT_EQ(told({"--bias-gelu-fusion"}),
            Words{"unknown option --bias-gelu-fusion: it is on unless --no-bias-gelu-fusion is given"});
  EXPECT_EQ(told({"--lr", "1", "lr-decay-style"}), Words{"unexpected word lr-decay-style: the option is "
                                                         "--lr-decay-style"});
  EXPECT_EQ(
      told({"\xe2\x80\x94lr", "1"})[0],
      "unexpected word \xe2\x80\x94lr: its dash is U+2014, as web pages and word processors write it; write --lr");
  EXPECT_EQ(told({"-x"}),
            Words{"unknown option -x: names begin with two dashes, and `espalier example --help` lists them"});
  Example stray;
  stray.table.stray_words_mean("--load");
  EXPECT_EQ(stray.parse({"two words"}), Words{"unexpected word 'two words': write --load 'two words'"});
}

TEST(Options, SuggestionsAreNear) {
  const auto told = [](const Words& arguments) { return Example().parse(arguments); };
  EXPECT_EQ(told({"--rl", "1"}), Words{"unknown option --rl; did you mean --lr?"});
  EXPECT_EQ(told({"--tp", "1"}), Words{"unknown option --tp: `espalier example --help` lists what there is"})
      << "as far from --lr as can be";
  EXPECT_EQ(told({"--lod", "1"}), Words{"unknown option --lod; did you mean --load?"});
  EXPECT_EQ(told({"--data-pth", "1"}), Words{"unknown option --data-pth; did you mean --data-path?"});
  EXPECT_EQ(told({"--lr-decay-style", "COSINE"}),
            Words{"--lr-decay-style COSINE (command line) is not one of linear, cosine; did you mean cosine?"});
}

TEST(Options, NoLineOfHelpIsOver100Columns) {
  std::string load;
  OptionTable table("espalier example", std::string(90, 'a') + " " + std::string(50, 'b'));
  Words choices;
  for (int i = 0; i < 40; ++i) choices.push_back("choice-" + std::to_string(i));
  table.add("--pick", load, std::string(300, 'h') + " word word").choices(choices).alias("--" + std::string(80, 'x'));
  for (const std::string& text : {table.help(), table.help_of("--pick")})
    for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1)
      EXPECT_LE(text.find('\n', at) - at, 100U) << text.substr(at, 120);
}

TEST(Options, CompletionsAreNamesChoicesAndFiles) {
  const Example e;
  EXPECT_NE(e.table.completions({"--num"}).find("--num-layers\ttransformer blocks\n"), std::string::npos);
  EXPECT_EQ(e.table.completions({"--num"}).find("--mmap-warmup"), std::string::npos) << "it has no effect";
  EXPECT_EQ(e.table.completions({"--lr-decay-style", "co"}), "cosine\n");
  EXPECT_EQ(e.table.completions({"--lr_decay-style="}), "--lr_decay-style=linear\n--lr_decay-style=cosine\n");
  EXPECT_EQ(e.table.completions({"--num-layers", ""}), "");
  EXPECT_EQ(e.table.completions({"--load", "a"}), ":files\n");
  EXPECT_EQ(e.table.completions({"--data-path", "a", "b"}), ":files\n") << "a list goes on";
  EXPECT_EQ(e.table.completions({"--load", "a", ""}), e.table.completions({"-"})) << "its one value is there";
  EXPECT_EQ(e.table.completions({"--bf16", ""}), e.table.completions({"-"}));
}

TEST(Options, ResolvedConfigurationReadsBack) {
  Example e;
  EXPECT_EQ(
      e.parse({"--num-layers", "5", "--lr=4294967296", "--no-bias-gelu-fusion", "--load", "a \"b\"\\\tü", "--data-path",
               "1", "x", "--rampup-batch-size", "1", "2", "3", "--eval-only", "yes", "--mmap-warmup"}),
      Words{});
  const std::string text = e.table.to_toml();
  EXPECT_EQ(text,
            "[size]\nnum_layers = 5\nbf16 = false\nno_bias_gelu_fusion = true\nload = \"a \\\"b\\\"\\\\\\u0009ü\"\n"
            "data_path = [\"1\", \"x\"]\nrampup_batch_size = [1, 2, 3]\neval_only = true\n"
            "\n[rates]\nlr = 4294967296.0\nlr_decay_style = \"linear\"\n");
  Example f;
  EXPECT_EQ(f.parse_toml(text), Words{});
  EXPECT_EQ(f.table.to_toml(), text);
  EXPECT_EQ(f.load, "a \"b\"\\\tü");
  EXPECT_FALSE(f.batch.has_value());
}

TEST(Options, HelpShowsCommonRowsAllRowsAGroupOrOneRow) {
  const Example e;
  const std::string common = e.table.help(false), all = e.table.help(true);
  EXPECT_NE(common.find("--num-layers N"), std::string::npos);
  EXPECT_EQ(common.find("--lr"), std::string::npos);
  EXPECT_NE(all.find("--lr-decay-style linear|cosine          shape [linear]"), std::string::npos) << all;
  EXPECT_NE(all.find("(no effect: files are mapped)"), std::string::npos);
  EXPECT_NE(all.find("--load, --load-from TEXT"), std::string::npos);
  EXPECT_EQ(e.table.help_of("RATES").find("rates:\n  --lr X"), 0U) << e.table.help_of("RATES");
  EXPECT_NE(e.table.help_of("num_layers").find("largest value: 1000"), std::string::npos);
  try {
    e.table.help_of("num-layer");
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("did you mean --num-layers?"), std::string::npos) << error.what();
  }
}

TEST(Options, HelpIsPrintedAndNothingElseDone) {
  Example e;
  testing::internal::CaptureStdout();
  EXPECT_FALSE(e.table.parse({"--bad", "--help"}, e.problems));
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_EQ(text.find("usage: espalier example [options]"), 0U) << text;
  EXPECT_TRUE(e.problems.empty());
}

TEST(Options, RowsWithoutEffectSayWhyOnce) {
  Example e;
  testing::internal::CaptureStderr();
  e.table.parse({"--mmap-warmup", "--mmap-warmup"}, e.problems);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: --mmap-warmup (command line) has no effect: files are mapped\n");
}

}  // namespace
}  // namespace espalier
