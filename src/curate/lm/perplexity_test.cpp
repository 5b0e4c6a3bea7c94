// Against what KenLM, SentencePiece and BigScience's and CCNet's code gave (tests/data/kenlm, made by
// tests/oracle/kenlm_oracle.py), and new cases where ESPALIER_FRESH_ORACLES names a folder with them.
#include "curate/lm/perplexity.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <tuple>

#include "base/file.h"
#include "base/json.h"
#include "curate/internal/run_fixture.h"
#include "curate/steps/oscar_filters.h"

namespace espalier::curate {
namespace {

using test::TestFolder;
using test::write_text;

const std::string kModels = "tests/data/kenlm/", kPieces = "tests/data/megatron_tokenizers/";

std::vector<std::string> model_folders() {
  std::vector<std::string> folders = {kModels};
  if (const char* fresh = std::getenv("ESPALIER_FRESH_ORACLES")) folders.push_back(concat(fresh, "/kenlm/"));
  return folders;
}

nlohmann::json expected(const std::string& folder) { return parse_json(read_file(folder + "expected.json"), folder); }

std::string message_of(const std::string& file) {
  try {
    NgramModel(file).score("a b");
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(NgramModel, ScoresEqualKenlmsToTheBit) {
  for (const std::string& folder : model_folders()) {
    const nlohmann::json sentences = expected(folder).at("sentences");
    ASSERT_EQ(sentences.size(), 27u);
    for (const auto& [name, unused] : sentences[0].at("scores").items()) {
      const NgramModel model(folder + name);
      for (const nlohmann::json& sentence : sentences) {
        const auto text = sentence.at("text").get<std::string>();
        const auto wanted = sentence.at("scores").at(name).get<float>();
        // A pruned n-gram's weight is a sum that KenLM makes in another order.
        const bool to_the_bit = !name.starts_with("gaps");
        EXPECT_NEAR(model.score(text), wanted, to_the_bit ? 0 : 1e-5 * std::fabs(wanted))
            << folder << name << ": " << text;
      }
    }
  }
}

TEST(NgramModel, SaysWhatItRead) {
  EXPECT_EQ(NgramModel(kModels + "model.arpa").description(), "4-grams of an ARPA file");
  EXPECT_EQ(NgramModel(kModels + "rest.bin").description(), "4-grams of KenLM's hash tables with rest costs");
  EXPECT_EQ(NgramModel(kModels + "quantized-array.bin").description(),
            "4-grams of KenLM's trie, quantized, with compressed pointers");
}

TEST(NgramModel, IsASumByHand) {
  TestFolder folder;
  write_text(folder / "a.arpa",
             "# made by hand\n\\data\\\nngram 1=5\nngram 2=3\nngram 3=1\n\n\\1-grams:\n-2\t<unk>\n-99\t<s>\t-0.5\n"
             "-1\t</s>\n-0.75\ta\t-0.25\n-1.5\tb\t-0.125\r\n\n\\2-grams:\n-0.5\t<s> a\t-1\n-0.25\ta b\n-3\tb a\t0\n\n"
             "\\3-grams:\n-0.0625\t<s> a b\n\n\\end\\\n");
  const NgramModel model(folder / "a.arpa");
  EXPECT_EQ(model.order(), 3);
  EXPECT_EQ(model.score(""), -0.5F - 1);                                  // p(</s>) after <s>
  EXPECT_EQ(model.score("a b"), -0.5F - 0.0625F + (-0.125F - 1));         // <s> a; <s> a b; </s> after b
  EXPECT_EQ(model.score("b a"), (-0.5F - 1.5F) - 3 + (-0.25F - 1));       // "b a" has backoff 0
  EXPECT_EQ(model.score(" x \t a"), (-0.5F - 2) - 0.75F + (-0.25F - 1));  // <unk> has no backoff
}

TEST(NgramModel, ReadsCompressedArpa) {
  TestFolder folder;
  ASSERT_EQ(std::system(concat("gzip -c ", kModels, "model.arpa > ", folder / "m.gz").c_str()), 0);
  EXPECT_EQ(NgramModel(folder / "m.gz").score("▁the"), NgramModel(kModels + "model.arpa").score("▁the"));
}

TEST(NgramModel, SaysWhatIsWrongWithArpa) {
  TestFolder folder;
  const std::string file = folder / "x.arpa";
  const std::string good =
      "\\data\\\nngram 1=4\nngram 2=1\n\n\\1-grams:\n-1\t<s>\t-1\n-1\t</s>\n-1\ta\n-1\tb\n\n\\2-grams:\n-1\t<s> "
      "a\n\n\\end\\\n";
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    write_text(file, text);
    return message_of(file);
  };
  write_text(file, good);
  EXPECT_EQ(message_of(file), "");
  const std::vector<std::array<std::string, 3>> cases = {
      {"\\data\\", "data", "neither an ARPA file, which begins with \\data\\, nor a binary file of KenLM"},
      {"ngram 2=1", "ngram 3=1", "line 3: expected 'ngram 2=COUNT', found 'ngram 3=1'"},
      {"ngram 2=1", "ngram 2=x", "line 3: expected 'ngram 2=COUNT'"},
      {"ngram 2=1", "ngram 2=2", "expected 2 2-grams as the header has it, found 1"},
      {"ngram 1=4", "ngram 1=3", "expected \\2-grams:, found '-1\tb'"},
      {"ngram 2=1", "ngram 2=99999999", "more than the file can hold"},
      {"-1\ta\n", "1\ta\n", "line 8: the log10 probability 1 is above 0"},
      {"-1\ta\n", "x\ta\n", "line 8: expected a log10 probability, found 'x'"},
      {"-1\ta\n", "-1\ta\tinf\n", "the log10 backoff is infinite"},
      {"-1\ta\n", "-1\t</s>\n", "'</s>' occurs twice"},
      {"-1\ta\n", "-1\n", "expected 1 words, found 0"},
      {"-1\ta\n", "-1\ta b c\n", "expected a log10 backoff, found 'b'"},
      {"<s> a", "<s> c", "'c' is not among the 1-grams"},
      {"<s> a", "<s> a\t-1", "a backoff of -1 for an n-gram of the greatest length"},
      {"\\end\\", "\\3-grams:", "expected \\end\\, found '\\3-grams:'"},
      {"\\end\\\n", "", "expected \\end\\, the file ends"},
      {"\\end\\", "\\end\\\nmore", "expected nothing after \\end\\, found 'more'"},
      {"-1\t<s>\t-1", "-1\tc\t-1", "'<s>' is not among the 1-grams"},
  };
  for (const auto& [from, to, message] : cases)
    EXPECT_NE(changed(from, to).find(message), std::string::npos) << message << "\n" << changed(from, to);
  write_text(file, "\\data\\\nngram 1=1\n\n\\1-grams:\n-1\ta\n\n\\end\\\n");
  EXPECT_NE(message_of(file).find("the model has no <s>"), std::string::npos) << message_of(file);
  write_text(
      file,
      "\\data\\\nngram 1=3\nngram 2=1\nngram 3=1\n\n\\1-grams:\n-1\t<s>\t-1\n-1\t</s>\n-1\ta\n\n\\2-grams:\n-1\ta a\n\n"
      "\\3-grams:\n-1\t<s> a a\n\n\\end\\\n");
  EXPECT_NE(message_of(file).find("the first 2 words of a 3-gram are not a 2-gram"), std::string::npos);
}

TEST(NgramModel, SaysWhatIsWrongWithBinaryFiles) {
  TestFolder folder;
  const std::string file = folder / "x.bin";
  const auto changed = [&](size_t at, const std::string& bytes, const std::string& from = "trie.bin") {
    std::string content = read_file(kModels + from);
    content.replace(at, bytes.size(), bytes);
    write_text(file, content);
    return message_of(file);
  };
  const std::vector<std::tuple<size_t, std::string, std::string>> cases = {
      {49, "4", "expected KenLM's binary format 5, found 'mmap lm http://kheafield.com/code format version 4'"},
      {34, "incomplete\n", "never finished"},
      {60, "x", "on a machine of another kind"},
      {88, std::string(1, '\1'), "n-grams of 1 words"},
      {96, std::string(1, '\7'), "kind 7"},
      {104, std::string(1, '\2'), "expected version 1 of kind 2, found 2"},
      {108, std::string(8, '\x7f'), "1-grams cannot be in"},
      {108, std::string("\xff\xff", 2), "bytes by its header, found"},
  };
  for (const auto& [at, bytes, message] : cases)
    EXPECT_NE(changed(at, bytes).find(message), std::string::npos) << message << "\n" << changed(at, bytes);
  EXPECT_NE(changed(92, std::string(4, '\0'), "probing.bin").find("0 times as large"), std::string::npos);
}

TEST(NgramModel, DamagedFilesAreRefusedOrRead) {
  TestFolder folder;
  const std::string file = folder / "x.bin";
  for (const char* name : {"probing.bin", "rest.bin", "trie.bin", "quantized-array.bin", "array.bin"}) {
    const std::string whole = read_file(kModels + name);
    // The words at the end are not needed.
    for (size_t size = 0; size < whole.size(); size += 997) {
      write_text(file, whole.substr(0, size));
      message_of(file);
    }
    uint32_t draw = 1;
    for (int change = 0; change < 60; ++change) {
      std::string damaged = whole;
      for (int byte = 0; byte < 40; ++byte) {
        draw = draw * 1664525 + 1013904223;
        damaged[108 + draw % (damaged.size() - 108)] = static_cast<char>(draw >> 24);
      }
      write_text(file, damaged);
      try {
        NgramModel model(file);
        for (const char* text : {"▁the ▁of ▁a", "s ▁in", "x"}) model.score(text);
      } catch (const UserError&) {
      }
    }
  }
}

TEST(SentencePieceCutter, PiecesEqualSentencePieces) {
  for (const std::string& folder : model_folders()) {
    const nlohmann::json cases = expected(folder).at("pieces");
    ASSERT_GT(cases.size(), 200u);
    std::map<std::string, std::unique_ptr<text::SentencePieceCutter>> cutters;
    for (const nlohmann::json& one : cases) {
      auto& cutter = cutters[one.at("model")];
      if (cutter == nullptr)
        cutter =
            std::make_unique<text::SentencePieceCutter>(kPieces + one.at("model").get<std::string>() + "/spm.model");
      EXPECT_EQ(cutter->cut(one.at("text").get<std::string>()), one.at("pieces").get<std::vector<std::string>>())
          << one.at("model") << one.at("text");
    }
  }
}

TEST(Perplexity, EqualsUpstreams) {
  const std::map<std::string, ModelText> settings = {
      {"plain", ModelText::kPlain}, {"ccnet", ModelText::kCcnet}, {"bigscience", ModelText::kBigScience}};
  for (const std::string& folder : model_folders()) {
    const PerplexityScorer words({folder + "trie.bin", "", ModelText::kPlain});
    const nlohmann::json documents = expected(folder).at("documents");
    ASSERT_EQ(documents.size(), 72u);
    for (const nlohmann::json& one : documents) {
      const auto text = one.at("text").get<std::string>();
      const ModelText setting = settings.at(one.at("setting"));
      EXPECT_EQ(model_text(setting, text), one.at("normal")) << one.at("setting") << text;
      const PerplexityScorer scorer({folder + "trie.bin", kPieces + "unigram/spm.model", setting});
      const std::optional<double> found = scorer(text);
      ASSERT_EQ(found.has_value(), !one.at("pieces").is_null());
      if (found && setting != ModelText::kPlain) {
        EXPECT_EQ(*found, one.at("pieces").get<double>()) << text;
      }
      if (setting != ModelText::kPlain) continue;
      EXPECT_DOUBLE_EQ(*found, one.at("pieces").get<double>()) << text;
      EXPECT_DOUBLE_EQ(words(text).value(), one.at("words").get<double>()) << text;
    }
  }
}

// The perplexity of "a" is 10^((0.5 + 1) / 2), of anything else 10^2.
std::string write_model(const TestFolder& folder) {
  write_text(
      folder / "m.arpa",
      "\\data\\\nngram 1=4\nngram 2=2\n\n\\1-grams:\n-3\t<unk>\n-1\t<s>\n-1\t</s>\n-1\ta\n\n\\2-grams:\n-0.5\t<s> a\n"
      "-1\ta </s>\n\n\\end\\\n");
  return concat("model = \"", folder / "m.arpa", "\"\n");
}

TEST(PerplexityStep, MeasuresAndDrops) {
  TestFolder folder;
  const std::string model = write_model(folder);
  const double of_a = std::pow(10.0, 0.75);
  const test::Applied kept = test::apply("perplexity", model, "a");
  EXPECT_EQ(kept.fate.kind, Fate::Kind::kKept);
  EXPECT_EQ(kept.document.metadata.json("perplexity"), nlohmann::json(of_a).dump());
  const test::Applied dropped = test::apply("perplexity", model + "most = 99.5", "x");
  EXPECT_EQ(dropped.fate.reason, "perplexity");
  EXPECT_DOUBLE_EQ(dropped.fate.value.value(), 100);
  EXPECT_EQ(dropped.fate.threshold, 99.5);
  EXPECT_EQ(test::apply("perplexity", model + "most = 100.5", "x").fate.reason, "");
  EXPECT_EQ(test::apply("perplexity", model + "least = 6", "a").fate.reason, "low_perplexity");
  // Two lines are two sentences.
  EXPECT_EQ(test::apply("perplexity", model, "a\na").document.metadata.json("perplexity"), nlohmann::json(of_a).dump());
}

TEST(PerplexityStep, SortsIntoBuckets) {
  TestFolder folder;
  const std::string model = write_model(folder);
  const auto bucket = [&](const std::string& options, const std::string& text, const std::string& metadata = "{}") {
    const test::Applied applied = test::apply("perplexity", model + options, text, metadata);
    return applied.fate.reason + std::string(applied.document.metadata.json("bucket"));
  };
  EXPECT_EQ(bucket("head = 6\ntail = 7\n", "a"), "\"head\"");  // 5.62
  EXPECT_EQ(bucket("head = 5\ntail = 6\n", "a"), "\"middle\"");
  EXPECT_EQ(bucket("head = 5\ntail = 5.5\n", "a"), "\"tail\"");
  EXPECT_EQ(bucket("head = 5\ntail = 6\nkeep_buckets = [\"head\", \"tail\"]", "a"), "bucket_middle");
  write_text(folder / "cutoff.csv", ",en,fr\r\n0,1,1\r\n30,5.0,6.0\r\n60,5.5,7\r\n");
  const std::string cutoffs = concat("cutoffs = \"", folder / "cutoff.csv", "\"\n");
  EXPECT_EQ(bucket(cutoffs, "a", "{\"language\": \"en\"}"), "\"tail\"");
  EXPECT_EQ(bucket(cutoffs, "a", "{\"language\": \"fr\"}"), "\"head\"");
  EXPECT_EQ(bucket(cutoffs, "a", "{\"language\": \"de\"}"), "\"all\"");
  EXPECT_EQ(bucket(cutoffs + "percentile_head = 0", "a", "{\"language\": \"fr\"}"), "\"middle\"");
}

TEST(PerplexityStep, LeavesOtherLanguagesAlone) {
  TestFolder folder;
  const std::string options = write_model(folder) + "language = \"en\"\nmost = 50\n";
  EXPECT_EQ(test::apply("perplexity", options, "x", "{\"language\": \"en\"}").fate.reason, "perplexity");
  const test::Applied other = test::apply("perplexity", options, "x", "{\"language\": \"fr\"}");
  EXPECT_EQ(other.fate.kind, Fate::Kind::kKept);
  EXPECT_EQ(other.document.metadata.json("perplexity"), "");
}

TEST(PerplexityStep, CcnetHasNoValueForNothing) {
  const std::string files = concat("model = \"", kModels, "trie.bin\"\nsentencepiece = \"", kPieces,
                                   "unigram/spm.model\"\nhead = 1\ntail = 2\nmost = 1\n");
  const test::Applied empty = test::apply("perplexity", files + "setting = \"ccnet\"", " \n");
  EXPECT_EQ(empty.document.metadata.json("bucket"), "\"all\"");
  EXPECT_EQ(empty.document.metadata.json("perplexity"), "");
  EXPECT_EQ(test::apply("perplexity", files + "setting = \"bigscience\"", " \n").fate.reason, "perplexity");
}

TEST(PerplexityStep, NamesWhatIsWrong) {
  TestFolder folder;
  const std::string model = write_model(folder);
  write_text(folder / "bad.csv", ",en\n30,1\n60,x,3\n");
  write_text(folder / "good.csv", ",en\n30,1\n60,3\n");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"model = \"none.arpa\"", "none.arpa"},
      {model + "setting = \"ccnet\"", "--setting ccnet needs --sentencepiece FILE"},
      {model + "least = 5\nmost = 4", "--least 5 is more than --most 4"},
      {model + "head = 5", "--head without --tail: give both"},
      {model + "head = 5\ntail = 4", "--head 5 is more than --tail 4"},
      {model + "keep_buckets = [\"head\"]", "--keep-buckets needs --head and --tail, or --cutoffs"},
      {model + "cutoffs = \"none.csv\"", "none.csv"},
      {concat(model, "cutoffs = \"", folder / "bad.csv", "\""), "the line '60,x,3' has 3 fields, the first has 2"},
      {concat(model, "cutoffs = \"", folder / "good.csv", "\"\npercentile_tail = 61"), "no line for percentile 61"},
      {concat(model, "cutoffs = \"", folder / "good.csv", "\"\nlanguage = \"fr\""), "there is no column fr"},
  };
  for (const auto& [options, message] : cases)
    EXPECT_NE(test::problems_of("perplexity", options).find(message), std::string::npos)
        << test::problems_of("perplexity", options);
}

TEST(Oscar, AsksTheModelLast) {
  const std::string options =
      concat("language = \"en\"\nleast_words = 1\nmost_character_repetition = 1\nmost_word_repetition = 1\n",
             "perplexity_model = \"", kModels, "trie.bin\"\nsentencepiece = \"", kPieces, "unigram/spm.model\"\n");
  const std::string text = "The river was high that spring.";
  const double measured =
      PerplexityScorer({kModels + "trie.bin", kPieces + "unigram/spm.model", ModelText::kBigScience})(text).value();
  const test::Applied dropped = test::apply("oscar", options + "most_perplexity = 2", text);
  EXPECT_EQ(dropped.fate.reason, "perplexity");
  EXPECT_EQ(dropped.fate.value, measured);
  EXPECT_EQ(test::apply("oscar", concat(options, "most_perplexity = ", measured), text).fate.reason, "");
  EXPECT_NE(test::problems_of("oscar", concat("language = \"en\"\nperplexity_model = \"", kModels, "trie.bin\""))
                .find("--perplexity-model needs --sentencepiece FILE"),
            std::string::npos);
}

TEST(Oscar, ChineseWordsArePieces) {
  EXPECT_EQ(bigscience_words_text(" \u3000ＡＢ，\n１２ Ç"), "ａｂ,00 ç");
  EXPECT_EQ(oscar_words_of({"▁The", "riv", "er", ".", "▁(x"}, true),
            (std::vector<std::string>{"▁the", "riv", "er", "▁(x"}));
}

}  // namespace
}  // namespace espalier::curate
