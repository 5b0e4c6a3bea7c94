// `espalier preprocess` and `espalier data` as a user meets them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"

namespace espalier {
namespace {

class DataCommand : public Command {
 protected:
  std::string tokenizer() const {
    return concat(" --tokenizer-type GPT2BPETokenizer --vocab-file ", data("gpt2-tiny/vocab.json"), " --merge-file ",
                  data("gpt2-tiny/merges.txt"), " ");
  }
  std::string data(const std::string& name) const { return root() + "/tests/data/" + name; }
  bool exists(const std::string& name) const { return fs::exists(folder_ / "work" / name); }
  void expect_same(const std::string& name, const std::string& expected) const {
    for (const char* ending : {".bin", ".idx"})
      EXPECT_TRUE(read_file(folder_ / "work" / (name + ending)) == read_file(expected + ending)) << name << ending;
  }
};

TEST_F(DataCommand, TakesALineMadeForMegatronsScript) {
  const Outcome outcome =
      bash(concat("espalier tools/preprocess_data.py --input ", data("owt-20.jsonl"), " --output-prefix owt --vocab ",
                  data("gpt2-tiny/vocab.json"), " --merge-file ", data("gpt2-tiny/merges.txt"),
                  " --dataset-impl mmap --tokenizer-type GPT2BPETokenizer --append-eod --workers 2 "
                  "--json-key text --log-interval 10"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_EQ(outcome.output, "");
  expect_same("owt_text_document", data("owt-20_text_document"));
}

TEST_F(DataCommand, ReadsStandardInputPlainOrCompressed) {
  const std::string rest = tokenizer() + "--append-eod --input - --output-prefix ";
  const Outcome outcome = bash(concat("set -e; F=", data("owt-20.jsonl"), "; cat $F | espalier preprocess", rest,
                                      "plain; ", "gzip -c $F | espalier preprocess", rest, "gz"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  expect_same("plain_text_document", data("owt-20_text_document"));
  expect_same("gz_text_document", data("owt-20_text_document"));
}

TEST_F(DataCommand, SumsUpAsJson) {
  const Outcome outcome =
      bash(concat("printf '{\"text\": \"a b\"}\\n\\n{\"text\": \"\"}\\r{\"text\": 7}\\r\\n{\"text\": \"\\xff\"}' > a; ",
                  "espalier preprocess --input a --output-prefix out --json", tokenizer()));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  const nlohmann::json summary = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(summary["records"], 5);
  EXPECT_EQ(summary["malformed"], 2);
  EXPECT_EQ(
      summary["first_malformed"][1],
      (nlohmann::json{
          {"file", "a"}, {"line", 4}, {"column", 0}, {"reason", "The value of 'text' is a number, not a string"}}));
  EXPECT_EQ(summary["replaced_bytes"], 1);
  EXPECT_EQ(summary["keys"][0]["documents"], 2);
  EXPECT_EQ(summary["keys"][0]["empty"], 1);
  EXPECT_EQ(summary["keys"][0]["prefix"], "out_text_document");
  EXPECT_EQ(summary["keys"][0]["dtype"], "uint16");
  EXPECT_NE(outcome.errors.find("2 malformed lines left out:\n  a:2: The line is blank\n  a:4: The value"),
            std::string::npos)
      << outcome.errors;
}

TEST_F(DataCommand, NamesEveryProblemOfALineAndWritesNothing) {
  const Outcome outcome = bash(
      "espalier preprocess --input none --json-keys a a --shard 4/4 --workers 0 --output-prefix new/out "
      "--tokenizer-type GPT2BPETokenizer --dataset-impl lazy --keep-newlines --lang german");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_LT(outcome.seconds, 2);
  for (const char* part :
       {"--workers 0 (command line) is below the smallest value, 1", "--shard 4/4: 4 parts are numbered 0/4 to 3/4",
        "needs --vocab-file", "needs --merge-file", "--input none: no such file",
        "--json-keys names 'a' more than once", "token files are written as mmap",
        "--keep-newlines keeps the line ends between sentences: it needs --split-sentences", "split by English rules"})
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << part << " in\n" << outcome.errors;
  EXPECT_TRUE(fs::is_empty(folder_ / "work"));
}

TEST_F(DataCommand, BadDataHasItsExitCodeAndLeavesNoTokenFiles) {
  const std::string rest = " --input a --output-prefix out" + tokenizer();
  const Outcome stopped = bash("printf '{\"text\": \"x\"}\\n{' > a; espalier preprocess --on-malformed stop" + rest);
  EXPECT_EQ(stopped.exit_code, 65);
  EXPECT_EQ(stopped.errors.find("error: a:2: Expecting property name enclosed in double quotes (column 2)."), 0u)
      << stopped.errors;
  const Outcome useless = bash("printf '{\"body\": \"x\"}' > a; espalier preprocess" + rest);
  EXPECT_EQ(useless.exit_code, 65);
  EXPECT_NE(useless.errors.find("a:1: No key 'text'"), std::string::npos) << useless.errors;
  EXPECT_FALSE(exists("out_text_document.idx"));
  EXPECT_FALSE(exists("out_text_document.idx.tmp"));
}

TEST_F(DataCommand, MergesTheShardsOfSeveralMachines) {
  const Outcome outcome =
      bash(concat("set -e; for part in 0 1 2; do espalier preprocess --append-eod --input ", data("owt-20.jsonl"),
                  " --shard $part/3 --output-prefix part$part", tokenizer(), "; done; ",
                  "espalier data merge --datasets part{0,1,2}_text_document --output-prefix whole"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  expect_same("whole", data("owt-20_text_document"));
}

TEST_F(DataCommand, InspectShowsCountsAndText) {
  const std::string command =
      "espalier data inspect " + data("owt-20_text_document") + " --documents 1:2 --max-tokens 5";
  const Outcome ids = bash(command);
  EXPECT_EQ(ids.exit_code, 0) << ids.errors;
  for (const char* part : {"20 documents, 20 sequences, 25,267 tokens of uint16", "all end with id 4999\n",
                           "document 1 (918 tokens, the first of them)"})
    EXPECT_NE(ids.output.find(part), std::string::npos) << part << " in\n" << ids.output;
  const Outcome text = bash(command + " --json" + tokenizer());
  const nlohmann::json shown = nlohmann::json::parse(text.output)["shown"];
  ASSERT_EQ(shown.size(), 1u);
  EXPECT_EQ(shown[0]["tokens"], 918);
  EXPECT_EQ(shown[0]["ids"].size(), 5u);
  const std::string line = read_file(data("owt-20.jsonl"));
  const nlohmann::json second =
      nlohmann::json::parse(line.substr(line.find('\n') + 1, line.find('\n', line.find('\n') + 1) - line.find('\n')));
  EXPECT_EQ(second["text"].get<std::string>().find(shown[0]["text"].get<std::string>()), 0u) << shown;
}

TEST_F(DataCommand, CheckReadsEveryId) {
  const std::string command = "espalier data check " + data("owt-20_text_document");
  const Outcome good = bash(command + tokenizer());
  EXPECT_EQ(good.exit_code, 0) << good.errors;
  EXPECT_NE(good.output.find(": ok, 20 documents, 25,267 tokens, ids 0 to 4999\n"), std::string::npos) << good.output;
  const Outcome bad = bash(command + " --vocab-size 4999");
  EXPECT_EQ(bad.exit_code, 65);
  EXPECT_NE(bad.errors.find("id of token 1410 of sequence 0 (byte 2820): expected 0 to 4998, found 4999."),
            std::string::npos)
      << bad.errors;
}

TEST_F(DataCommand, CheckDecodesAndEncodesWithATokenizer) {
  const Outcome outcome =
      bash(concat("espalier data check --json --tokenizer ", data("gpt2-tiny"), " ", data("owt-20_text_document")));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  const nlohmann::json found = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(found["documents_with_eod"], 20);
  EXPECT_EQ(found["round_trip_documents"], 20);
  EXPECT_EQ(found["largest_id"], 4999);
  const Outcome twice = bash(concat("espalier data check --vocab-size 5 --tokenizer ", data("gpt2-tiny"), " x"));
  EXPECT_EQ(twice.exit_code, 2);
  EXPECT_NE(twice.errors.find("--vocab-size and the tokenizer say the same thing"), std::string::npos);
}

TEST_F(DataCommand, MergesAFolderAndKeepsWhatIsKnownOfIt) {
  const Outcome outcome =
      bash(concat("set -e; for part in 0 1 2; do espalier preprocess --append-eod --input ", data("owt-20.jsonl"),
                  " --shard $part/3 --output-prefix in/part$part", tokenizer(), "; done; ",
                  "espalier data merge --input in --output-prefix whole; espalier data inspect --json whole"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  expect_same("whole", data("owt-20_text_document"));
  const nlohmann::json made = nlohmann::json::parse(outcome.output)["made"];
  EXPECT_EQ(made["tokenizer"]["vocab_size"], 5000);
  EXPECT_EQ(made["options"]["merged from"], "in/part0_text_document in/part1_text_document in/part2_text_document");
  EXPECT_EQ(bash("espalier data merge --output-prefix out").exit_code, 2);
}

TEST_F(DataCommand, InspectShowsTextByTheTokenizerThatTheDataNames) {
  const std::string made =
      concat("set -e; cp -r ", data("gpt2-tiny"), " there; espalier preprocess --append-eod --input ",
             data("owt-20.jsonl"), " --output-prefix d/a --tokenizer-type GPT2BPETokenizer ",
             "--vocab-file there/vocab.json --merge-file there/merges.txt; ");
  const std::string inspect = "espalier data inspect --json --documents 1:2 --max-tokens 5 d/a_text_document";
  const Outcome found =
      bash(made + "cd d; espalier data inspect --json --documents 1:2 --max-tokens 5 a_text_document");
  ASSERT_EQ(found.exit_code, 0) << found.errors;
  const std::string lines = read_file(data("owt-20.jsonl"));
  const size_t second = lines.find('\n') + 1;
  const std::string text = nlohmann::json::parse(lines.substr(second, lines.find('\n', second) - second))["text"];
  EXPECT_EQ(text.find(nlohmann::json::parse(found.output)["shown"][0]["text"].get<std::string>()), 0u) << found.output;
  // Moved next to the data it is still found; elsewhere or changed it is not, and that is reported.
  const Outcome moved = bash("mv there/*.json there/*.txt d; " + inspect);
  EXPECT_TRUE(nlohmann::json::parse(moved.output)["shown"][0].contains("text")) << moved.errors;
  const Outcome changed = bash("head -n 3000 d/merges.txt > m; mv m d/merges.txt; " + inspect);
  EXPECT_EQ(changed.exit_code, 0) << changed.errors;
  EXPECT_FALSE(nlohmann::json::parse(changed.output)["shown"][0].contains("text"));
  EXPECT_NE(changed.errors.find("has the fingerprint"), std::string::npos) << changed.errors;
  const Outcome gone = bash("rm d/merges.txt; " + inspect);
  EXPECT_EQ(gone.exit_code, 0) << gone.errors;
  EXPECT_NE(gone.errors.find("the tokenizer that made it is not where it was, so ids are shown: "), std::string::npos)
      << gone.errors;
}

// The data of gpt2-tiny, 5000 ids, twice: once made with half of its merges.
TEST_F(DataCommand, TwoTokenizersInABlendAreNoticedAndAnotherThanTheDatasIsRefused) {
  const std::string preprocess =
      concat("espalier preprocess --append-eod --input ", data("owt-20.jsonl"), " --tokenizer-type GPT2BPETokenizer ");
  const Outcome blend = bash(concat(
      "set -e; cp -r ", data("gpt2-tiny"), " other; chmod -R u+w other; head -n 3000 ", data("gpt2-tiny/merges.txt"),
      " > other/merges.txt; ", preprocess, "--vocab-file ", data("gpt2-tiny/vocab.json"), " --merge-file ",
      data("gpt2-tiny/merges.txt"), " --output-prefix a; ", preprocess, "--vocab-file other/vocab.json --merge-file ",
      "other/merges.txt --output-prefix b; espalier data blend a_text_document ", "b_text_document"));
  EXPECT_EQ(blend.exit_code, 0) << blend.errors;
  EXPECT_NE(blend.errors.find("'b_text_document' was made with another tokenizer than 'a_text_document': "),
            std::string::npos)
      << blend.errors;
  const std::string train =
      concat("espalier train gpt --validate-only --recipe ", root(), "/recipes/tiny.toml", tokenizer(), "--data-path ");
  EXPECT_EQ(bash(train + "a_text_document").exit_code, 0);
  const Outcome other = bash(train + "b_text_document");
  EXPECT_EQ(other.exit_code, 65);
  EXPECT_NE(other.errors.find("Give the tokenizer that made the data, or --allow-other-tokenizer."), std::string::npos)
      << other.errors;
  const Outcome allowed = bash(train + "b_text_document --allow-other-tokenizer");
  EXPECT_EQ(allowed.exit_code, 0) << allowed.errors;
  EXPECT_NE(allowed.errors.find("was made with another tokenizer: "), std::string::npos) << allowed.errors;
}

TEST_F(DataCommand, ValidationLooksAtTheTokenFiles) {
  const auto validate = [&](const std::string& prepare, const std::string& flags) {
    return bash(concat("rm -rf d d.*; for end in bin idx; do cp ", data("owt-20_text_document"), ".$end d.$end; done; ",
                       prepare, "; espalier train gpt --validate-only --recipe ", root(), "/recipes/tiny.toml ",
                       flags));
  };
  const auto expect = [&](const Outcome& outcome, int exit_code, const std::string& part) {
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.errors;
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << part << " in\n" << outcome.errors;
    EXPECT_EQ(outcome.output.empty(), exit_code != 0);
  };
  const std::string flags = tokenizer() + " --data-path d";
  expect(validate("true", flags), 0, "valid: ");
  expect(validate("truncate -s 50000 d.bin", flags), 65, "d.bin: file size: expected 50,534 bytes");
  expect(validate("truncate -s -1 d.idx", flags), 65, "d.idx: file size: expected ");
  expect(validate(": > d.idx", flags), 65, "d.idx: file size: expected at least 34 bytes, found 0 bytes");
  expect(validate("printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 77\n' > d.bin", flags), 65,
         "'d.bin' is a pointer of Git LFS to a file of 77 bytes, which was not fetched.");
  expect(validate("rm d.bin; mkfifo d.bin", flags), 2, "--data-path: 'd.bin' is a pipe (FIFO)");
  expect(validate("rm d.*; ln -s gone d.idx", flags), 2, "'d.idx' is a link to 'gone', which does not exist");
  expect(validate("rm d.*; mkdir d; touch d/x.idx", flags), 2, "'d' is a folder. Give a data set in it, without .bin");
  expect(validate("rm -r d*; echo '{\"text\": 1}' > d", flags), 2,
         "--data-path: 'd' is text (JSON); training reads token files (.bin with .idx). Make them with: espalier "
         "preprocess --input 'd' --output-prefix 'd'");
  // Ids of 5000 with a tokenizer of 1000; the last id of a document is the one that cannot be.
  const std::string null = "--tokenizer-type NullTokenizer --vocab-size 999 --data-path d";
  expect(validate("rm -f d", null), 65, ": expected 0 to 999, found ");
  expect(validate("true", null + " --allow-other-tokenizer --pad-vocab-size-to 5120"), 0, "valid: ");
  expect(validate("truncate -s 50000 d.bin", flags + " --hidden-size 65"), 2, "d.bin: file size: expected 50,534");
}

TEST_F(DataCommand, BlendWritesWhatTheSamplesAreReadFrom) {
  const std::string copy = concat("mkdir -p d/en d/sw; cp ", data("owt-20_text_document"), ".* d/en; cp ",
                                  data("owt-20_text_document"), ".* d/sw; ");
  const Outcome outcome =
      bash(concat("set -e; ", copy,
                  "espalier data blend d/en/owt-20_text_document d/sw/owt-20_text_document --epochs sw=3 "
                  "--output-folder d/splits; mv d e; "
                  "espalier data sample --train-weighted-split-paths-path e/splits/train-splits.txt --seq-length 64 "
                  "--num-samples 1000,0,0 --count 1 --json"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.output.find("75.000%            73,335    3.000  d/sw"), std::string::npos) << outcome.output;
  EXPECT_EQ(read_file(folder_ / "work/e/splits/train-splits.txt"),
            "\"train: 0.25 0:0.95 ../en/owt-20_text_document, 0.75 0:0.95 ../sw/owt-20_text_document\"\n");
  EXPECT_NE(outcome.errors.find("of e/sw/owt-20_text_document"), std::string::npos) << outcome.errors;
}

// From raw text to samples of both kinds: the ids of a sample are those of whole sentences of one document.
TEST_F(DataCommand, ShowsSamplesOfBertAndT5) {
  const std::string vocabulary = concat(" --tokenizer-type BertWordPieceLowerCase --vocab-file ",
                                        data("megatron_tokenizers/bert_lower/vocab.txt"), " --vocab-extra-ids 50 ");
  const Outcome made = bash(concat("espalier preprocess --split-sentences --input ", data("owt-20.jsonl"),
                                   " --output-prefix owt", vocabulary));
  ASSERT_EQ(made.exit_code, 0) << made.errors;
  ASSERT_TRUE(exists("owt_text_sentence.idx"));
  EXPECT_NE(made.errors.find(" sentences, "), std::string::npos) << made.errors;
  const std::string rest = " --data-path owt_text_sentence --split 80,10,10 --num-samples 40,8,8 --count 3 ";
  const Outcome bert = bash(concat("espalier data sample bert --seq-length 40", rest, vocabulary, "--json"));
  ASSERT_EQ(bert.exit_code, 0) << bert.errors;
  std::istringstream lines(bert.output);
  std::string line;
  int count = 0;
  for (; std::getline(lines, line); ++count) {
    const auto sample = nlohmann::ordered_json::parse(line);
    std::vector<std::string> keys;
    for (const auto& [key, value] : sample.items()) keys.push_back(key);
    EXPECT_EQ(keys, (std::vector<std::string>{"text", "types", "labels", "is_random", "loss_mask", "padding_mask",
                                              "truncated"}));
    EXPECT_EQ(sample["text"].size(), 40u);
  }
  EXPECT_EQ(count, 3);
  const Outcome t5 = bash(
      concat("espalier data sample t5 --encoder-seq-length 40 --decoder-seq-length 30 --set valid", rest, vocabulary));
  ASSERT_EQ(t5.exit_code, 0) << t5.errors;
  EXPECT_NE(t5.output.find("=== sample 2 of valid"), std::string::npos) << t5.output;
  EXPECT_NE(t5.output.find("--- decoder: [BOS] <extra_id_0>"), std::string::npos) << t5.output;
  const Outcome map = bash(concat("espalier data sample bert --seq-length 40 --mapping --json", rest));
  ASSERT_EQ(map.exit_code, 0) << map.errors;
  EXPECT_EQ(nlohmann::json::parse(map.output.substr(0, map.output.find('\n'))).size(), 3u) << map.output;
}

TEST_F(DataCommand, NamesEveryProblemOfSamplesOfSentences) {
  const std::string store = data("owt-20_text_document");
  const Outcome bert =
      bash(concat("espalier data sample bert --short-seq-prob 2 --mask-prob 0 --num-samples 1 --data-path ", store,
                  " --seq-length 4", tokenizer()));
  EXPECT_EQ(bert.exit_code, 2);
  for (const char* part : {"does not say where sentences end: each of its 20 documents is a single sequence",
                           "BERT needs the special tokens CLS, SEP, MASK, PAD", "--seq-length 4: BERT needs at least 5",
                           "--mask-prob 0: expected a share above 0", "--short-seq-prob 2",
                           "--num-samples 1: expected three whole numbers"})
    EXPECT_NE(bert.errors.find(part), std::string::npos) << part << "\n" << bert.errors;
  const Outcome t5 = bash(concat("espalier data sample t5 --data-path ", store, " --seq-length 64", tokenizer()));
  EXPECT_EQ(t5.exit_code, 2);
  for (const char* part :
       {"T5 needs the special tokens PAD", "has none. Give --vocab-extra-ids 100", "--decoder-seq-length is required"})
    EXPECT_NE(t5.errors.find(part), std::string::npos) << part << "\n" << t5.errors;
  EXPECT_EQ(bash("espalier data sample brt").exit_code, 2);
  const Outcome gpt =
      bash(concat("espalier data sample gpt --data-path ", store, " --seq-length 64 --count 2 --json > a; ",
                  "espalier data sample --data-path ", store, " --seq-length 64 --count 2 --json | cmp - a"));
  EXPECT_EQ(gpt.exit_code, 0) << gpt.errors;
  const Outcome words =
      bash("espalier completion --words data sample ''; espalier completion --words data sample t5 --deco");
  EXPECT_NE(words.output.find("t5\ttext with runs left out"), std::string::npos) << words.output;
  EXPECT_NE(words.output.find("--decoder-seq-length\t"), std::string::npos) << words.output;
}

}  // namespace
}  // namespace espalier
