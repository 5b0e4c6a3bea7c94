#include "data/preprocess.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "data/internal/compress.h"
#include "data/internal/test_folder.h"
#include "data/merge.h"
#include "data/token_store.h"

namespace espalier::data {
namespace {

using test_files::error_of;
using test_files::gzipped;
using test_files::TestFolder;
using test_files::write_text;
using test_files::zstandard;

const std::string kOracle = "tests/data/megatron-oracle/preprocess/tricky/";
const std::string kShared = "../shared/data/";  // next to the project, not part of it

std::unique_ptr<text::Tokenizer> gpt2(const std::string& folder) {
  text::TokenizerOptions options;
  options.type = "GPT2BPETokenizer";
  options.vocab_file = folder + "/vocab.json";
  options.merge_file = folder + "/merges.txt";
  return text::load_tokenizer(options);
}

const text::Tokenizer& tiny() {
  static const std::unique_ptr<text::Tokenizer> tokenizer = gpt2("tests/data/gpt2-tiny");
  return *tokenizer;
}

PreprocessOptions options_for(std::vector<std::string> inputs, const std::string& prefix) {
  PreprocessOptions options;
  options.inputs = std::move(inputs);
  options.output_prefix = prefix;
  options.append_eod = true;
  return options;
}

void expect_same_store(const std::string& prefix, const std::string& expected) {
  for (const char* ending : {".bin", ".idx"})
    EXPECT_TRUE(read_file(prefix + ending) == read_file(expected + ending))
        << prefix << ending << " differs from " << expected;
}

// About 4 MB of records in many blocks: awkward ends, malformed and empty ones.
std::string large_corpus() {
  const std::string documents = read_file("tests/data/owt-20.jsonl");
  std::string corpus;
  for (int round = 0; round < 40; ++round) {
    corpus += documents;
    corpus += "{\"text\": \"\"}\r\n{\"text\": oops}\r{\"text\": \"round " + std::to_string(round) + "\"}\r\n";
  }
  return corpus;
}

TEST(Preprocess, WritesMegatronsBytesForRealText) {
  TestFolder folder;
  const PreprocessSummary summary = preprocess(options_for({"tests/data/owt-20.jsonl"}, folder / "a"), tiny());
  expect_same_store(folder / "a_text_document", "tests/data/owt-20_text_document");
  EXPECT_EQ(summary.num_records, 20);
  EXPECT_EQ(summary.input_bytes, file_size_bytes("tests/data/owt-20.jsonl"));
  ASSERT_EQ(summary.keys.size(), 1u);
  EXPECT_EQ(summary.keys[0].num_documents, 20);
  EXPECT_EQ(summary.keys[0].num_tokens * 2, file_size_bytes("tests/data/owt-20_text_document.bin"));
}

// Documents as texts: the sequences of each.
std::vector<std::vector<std::string>> texts_of(const std::string& prefix) {
  const TokenStore store(prefix);
  store.check_all();
  std::vector<std::vector<std::string>> documents(static_cast<size_t>(store.num_documents()));
  for (int64_t document = 0; document < store.num_documents(); ++document)
    for (int64_t at = store.first_sequence(document); at < store.first_sequence(document + 1); ++at) {
      std::vector<int32_t> ids(static_cast<size_t>(store.size(at)));
      store.read(at, 0, store.size(at), ids.data());
      documents[static_cast<size_t>(document)].push_back(tiny().decode(ids));
    }
  return documents;
}

TEST(Preprocess, SplitsDocumentsIntoSentences) {
  TestFolder folder;
  write_text(folder / "in.jsonl", R"({"text": " Mr. A is here.  B is not!\n\nC", "title": "One. Two."})"
                                  "\n"
                                  R"({"text": " \n ", "title": ""})"
                                  "\n"
                                  R"({"text": "Alone", "title": "Three."})"
                                  "\n");
  PreprocessOptions options = options_for({folder / "in.jsonl"}, folder / "cut");
  options.json_keys = {"text", "title"};
  options.split_sentences = true;
  const PreprocessSummary summary = preprocess(options, tiny());
  using Texts = std::vector<std::vector<std::string>>;
  EXPECT_EQ(texts_of(folder / "cut_text_sentence"),
            (Texts{{"Mr. A is here.", "B is not!", "C<|endoftext|>"}, {"Alone<|endoftext|>"}}));
  EXPECT_EQ(texts_of(folder / "cut_title_sentence"), (Texts{{"One.", "Two.<|endoftext|>"}, {"Three.<|endoftext|>"}}));
  EXPECT_EQ(summary.keys[0].num_documents, 2);
  EXPECT_EQ(summary.keys[0].num_sequences, 4);
  EXPECT_EQ(summary.keys[0].num_empty, 1);
  EXPECT_EQ(summary.keys[1].num_empty, 1);

  options.output_prefix = folder / "kept";
  options.keep_newlines = true;
  options.append_eod = false;
  preprocess(options, tiny());
  EXPECT_EQ(texts_of(folder / "kept_text_sentence"),
            (Texts{{" Mr. A is here.  ", "B is not!\n\n", "C"}, {" \n "}, {"Alone"}}));
}

TEST(Preprocess, ABlankBeforeATextIsPartOfIt) {
  TestFolder folder;
  write_text(folder / "in.jsonl", "{\"text\": \"a b\"}\n{\"text\": \"\"}\n");
  PreprocessOptions options = options_for({folder / "in.jsonl"}, folder / "spaced");
  options.prepend_space = true;
  preprocess(options, tiny());
  using Texts = std::vector<std::vector<std::string>>;
  EXPECT_EQ(texts_of(folder / "spaced_text_document"), (Texts{{" a b<|endoftext|>"}, {" <|endoftext|>"}}));
}

TEST(Preprocess, OneTokenEndsADocument) {
  TestFolder folder;
  write_text(folder / "in.jsonl", "{\"text\": \"hello\"}\n");
  text::TokenizerOptions bert, numbers;
  bert.type = "BertWordPieceLowerCase";
  bert.vocab_file = "tests/data/megatron_tokenizers/bert_lower/vocab.txt";
  numbers.type = "NullTokenizer";
  numbers.vocab_size = 9;
  const auto with_bos = text::load_tokenizer(bert), without = text::load_tokenizer(numbers);
  PreprocessOptions options = options_for({folder / "in.jsonl"}, folder / "out");
  options.append_eod = false;
  options.append_bos = true;
  preprocess(options, *with_bos);
  const TokenStore store(folder / "out_text_document");
  std::vector<int64_t> ids(static_cast<size_t>(store.size(0)));
  store.read(0, 0, store.size(0), ids.data());
  std::vector<int32_t> expected = with_bos->encode("hello");
  expected.push_back(with_bos->named_ids().bos.value());
  EXPECT_EQ(ids, std::vector<int64_t>(expected.begin(), expected.end()));

  options.append_eod = options.overwrite = true;
  Problems problems;
  check(options, without.get(), problems);
  EXPECT_EQ(
      problems.messages(),
      (std::vector<std::string>{concat("--append-bos: ", without->description(), " has no beginning-of-text token"),
                                "--append-eod and --append-bos end documents with one token each; give one"}));
}

TEST(Preprocess, SentencesDoNotDependOnWorkersNorOnParts) {
  TestFolder folder;
  write_text(folder / "in.jsonl", large_corpus());
  PreprocessOptions options = options_for({folder / "in.jsonl"}, folder / "one");
  options.split_sentences = true;
  const PreprocessSummary whole = preprocess(options, tiny());
  EXPECT_GT(whole.keys[0].num_sequences, 10 * whole.keys[0].num_documents);
  options.workers = 3;
  options.output_prefix = folder / "three";
  preprocess(options, tiny());
  expect_same_store(folder / "three_text_sentence", folder / "one_text_sentence");
  std::vector<std::string> parts;
  for (int64_t part = 0; part < 3; ++part) {
    options.shard = {part, 3};
    options.output_prefix = folder / concat("part", part);
    preprocess(options, tiny());
    parts.push_back(options.output_prefix + "_text_sentence");
  }
  merge(parts, folder / "merged");
  expect_same_store(folder / "merged", folder / "one_text_sentence");
}

TEST(Preprocess, WritesMegatronsBytesForTrickyRecords) {
  TestFolder folder;
  PreprocessOptions lines = options_for({kOracle + "lines.jsonl"}, folder / "lines_tiny");
  lines.json_keys = {"text", "title"};
  const PreprocessSummary summary = preprocess(lines, tiny());
  for (const char* key : {"text", "title"})
    expect_same_store(concat(folder / "lines_tiny_", key, "_document"),
                      concat(kOracle, "lines_tiny_", key, "_document"));
  EXPECT_EQ(summary.num_records, 9);
  EXPECT_EQ(summary.keys[0].num_empty, 2);
  EXPECT_EQ(summary.malformed.count, 0);

  preprocess(options_for({kOracle + "unicode.jsonl"}, folder / "unicode_tiny"), tiny());
  expect_same_store(folder / "unicode_tiny_text_document", kOracle + "unicode_tiny_text_document");
}

TEST(Preprocess, WritesMegatronsBytesWithTheWholeVocabulary) {
  if (!std::filesystem::exists(kShared + "gpt2")) GTEST_SKIP() << "needs " << kShared << "gpt2";
  const std::unique_ptr<text::Tokenizer> tokenizer = gpt2(kShared + "gpt2");
  TestFolder folder;
  for (const bool append_eod : {true, false}) {
    const std::string mark = append_eod ? "" : "_noeod";
    for (const std::string name : {"lines", "unicode"}) {
      PreprocessOptions options = options_for({kOracle + name + ".jsonl"}, folder / name + mark);
      options.append_eod = append_eod;
      if (name == "lines") options.json_keys = {"title", "text"};
      preprocess(options, *tokenizer);
      for (const std::string& key : options.json_keys)
        expect_same_store(folder / name + mark + "_" + key + "_document",
                          kOracle + name + mark + "_" + key + "_document");
    }
  }
}

TEST(Preprocess, WritesMegatronsBytesForAThousandDocuments) {
  if (!std::filesystem::exists(kShared + "openwebtext-1000.jsonl")) GTEST_SKIP() << "needs " << kShared;
  TestFolder folder;
  PreprocessOptions options = options_for({kShared + "openwebtext-1000.jsonl"}, folder / "owt");
  options.workers = 2;
  preprocess(options, tiny());
  expect_same_store(folder / "owt_text_document", kShared + "owt_text_document");
}

TEST(Preprocess, DoesNotDependOnTheNumberOfWorkers) {
  TestFolder folder;
  write_text(folder / "corpus", large_corpus());
  for (const int64_t workers : {1, 2, 7}) {
    PreprocessOptions options = options_for({folder / "corpus"}, folder / std::to_string(workers));
    options.workers = workers;
    const PreprocessSummary summary = preprocess(options, tiny());
    EXPECT_EQ(summary.num_records, 40 * 23);
    EXPECT_EQ(summary.keys[0].num_documents, 40 * 21);
    EXPECT_EQ(summary.keys[0].num_empty, 40);
    EXPECT_EQ(summary.malformed.count, 40);
    EXPECT_EQ(summary.malformed.first[9].line, 9 * 23 + 22);
    expect_same_store(folder / std::to_string(workers) + "_text_document", folder / "1_text_document");
  }
}

TEST(Preprocess, ShardsMergedInOrderAreTheWhole) {
  TestFolder folder;
  const std::string corpus = large_corpus();
  write_text(folder / "a", corpus);
  write_text(folder / "b.gz", gzipped("{\"text\": \"from a compressed file\"}\n"));
  write_text(folder / "c", corpus.substr(0, corpus.find('\n') + 1));
  const std::vector<std::string> inputs = {folder / "a", folder / "b.gz", folder / "c"};
  preprocess(options_for(inputs, folder / "whole"), tiny());
  TokenStoreWriter merged(folder / "merged", TokenType::kUint16);
  int64_t malformed = 0;
  std::vector<int64_t> lines;
  for (int64_t index = 0; index < 5; ++index) {
    PreprocessOptions options = options_for(inputs, folder / concat("shard", index));
    options.shard = {index, 5};
    const PreprocessSummary summary = preprocess(options, tiny());
    merged.append(TokenStore(folder / concat("shard", index, "_text_document")));
    malformed += summary.malformed.count;
    for (const MalformedRecord& record : summary.malformed.first) lines.push_back(record.line);
  }
  merged.finish();
  expect_same_store(folder / "merged", folder / "whole_text_document");
  EXPECT_EQ(malformed, 40);
  ASSERT_EQ(lines.size(), 40u);
  for (size_t round = 0; round < 40; ++round) EXPECT_EQ(lines[round], static_cast<int64_t>(round) * 23 + 22);
}

TEST(Preprocess, ReadsCompressedFilesAsPlainOnes) {
  TestFolder folder;
  const std::string corpus = large_corpus();
  write_text(folder / "plain", corpus);
  write_text(folder / "gz", gzipped(corpus));
  write_text(folder / "zst", zstandard(corpus));
  preprocess(options_for({folder / "plain"}, folder / "plain"), tiny());
  for (const char* name : {"gz", "zst"}) {
    const PreprocessSummary summary = preprocess(options_for({folder / name}, folder / name), tiny());
    expect_same_store(concat(folder / name, "_text_document"), folder / "plain_text_document");
    EXPECT_EQ(summary.input_bytes, file_size_bytes(folder / name));
    EXPECT_EQ(summary.record_bytes, static_cast<int64_t>(corpus.size()));
  }
}

TEST(Preprocess, JoinsSeveralFilesWithoutAnEndAtTheLastLine) {
  TestFolder folder;
  write_text(folder / "a", "{\"text\": \"one\"}");
  write_text(folder / "b", "");
  write_text(folder / "c", "{\"text\": \"two\"}\n");
  write_text(folder / "both", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  preprocess(options_for({folder / "a", folder / "b", folder / "c"}, folder / "three"), tiny());
  preprocess(options_for({folder / "both"}, folder / "one"), tiny());
  expect_same_store(folder / "three_text_document", folder / "one_text_document");
}

TEST(Preprocess, CountsReplacedBytesAndSurrogates) {
  TestFolder folder;
  write_text(folder / "a", "{\"text\": \"caf\xe9 \xff\", \"x\": \"\xff\"}\n{\"text\": \"half \\ud83d\"}\n");
  PreprocessOptions options = options_for({folder / "a"}, folder / "a");
  PreprocessSummary summary = preprocess(options, tiny());
  EXPECT_EQ(summary.num_replaced_bytes, 2);
  EXPECT_EQ(summary.malformed.count, 1) << "upstream's tokenizer fails on half a pair";
  options.replace_lone_surrogates = true;
  options.overwrite = true;
  summary = preprocess(options, tiny());
  EXPECT_EQ(summary.malformed.count, 0);
  EXPECT_EQ(summary.num_replaced_surrogates, 1);
  const TokenStore store(folder / "a_text_document");
  std::vector<int32_t> ids(static_cast<size_t>(store.size(1)));
  store.read(1, 0, store.size(1), ids.data());
  EXPECT_EQ(tiny().decode(ids), "half \ufffd<|endoftext|>");
}

TEST(Preprocess, StopsAtTheFirstMalformedLineIfAsked) {
  TestFolder folder;
  write_text(folder / "a", large_corpus());
  PreprocessOptions options = options_for({folder / "a"}, folder / "out");
  options.stop_at_malformed = true;
  options.workers = 3;
  EXPECT_EQ(error_of([&] { preprocess(options, tiny()); }),
            (folder / "a") +
                ":22: Expecting value (column 10). No token files were written. Fix the line, or leave such "
                "lines out with --on-malformed skip.");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "a file is left";
}

TEST(Preprocess, RefusesAnInputWithoutAUsableRecord) {
  TestFolder folder;
  write_text(folder / "a", "{\"body\": \"x\"}\n{\"body\": \"y\"}\n");
  EXPECT_EQ(error_of([&] { preprocess(options_for({folder / "a"}, folder / "out"), tiny()); }),
            "none of the 2 records can be used. The first: " + (folder / "a") +
                ":1: No key 'text'. Expected JSONL, one object a line: {\"text\": \"...\"}. Nothing was written.");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "a file is left";
}

TEST(Preprocess, ReportsADamagedFileAndLeavesTheOldTokens) {
  TestFolder folder;
  preprocess(options_for({"tests/data/owt-20.jsonl"}, folder / "out"), tiny());
  std::string packed = gzipped(large_corpus());
  write_text(folder / "a", packed.substr(0, packed.size() / 2));
  PreprocessOptions options = options_for({folder / "a"}, folder / "out");
  options.overwrite = true;
  const std::string message = error_of([&] { preprocess(options, tiny()); });
  EXPECT_EQ(message.find("'" + (folder / "a") + "': the gzip data is cut off after "), 0u) << message;
  expect_same_store(folder / "out_text_document", "tests/data/owt-20_text_document");
}

TEST(Preprocess, LeavesTokenFilesThatExist) {
  TestFolder folder;
  write_text(folder / "a", "{\"text\": \"one\"}\n");
  write_text(folder / "out_text_document.bin", "something dear");
  PreprocessOptions options = options_for({folder / "a"}, folder / "out");
  const std::string expected = concat("--output-prefix ", folder / "out", ": '", folder / "out_text_document.bin",
                                      "' (14 B) exists. Give another name, or replace it with --overwrite.");
  Problems problems;
  check(options, &tiny(), problems);
  EXPECT_EQ(problems.messages(), std::vector<std::string>{expected});
  EXPECT_EQ(error_of([&] { preprocess(options, tiny()); }), expected);
  EXPECT_EQ(read_file(folder / "out_text_document.bin"), "something dear");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2) << "a file is left";
  options.overwrite = true;
  preprocess(options, tiny());
  EXPECT_EQ(TokenStore(folder / "out_text_document").num_documents(), 1);
}

// What was expected is reported, and nothing stays: neither a file nor the folder that was made for it.
TEST(Preprocess, RefusesInputThatIsNoJsonl) {
  TestFolder folder;
  const std::string expected = " Expected JSONL, one object a line: {\"text\": \"...\"}. Nothing was written.";
  const std::string file = folder / "a", name = "'" + file + "'";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "there is no text in " + name + "." + expected},
      {"{\"text\": \"\"}\n{\"text\": \"\"}\n", "the 2 documents in " + name + " are all empty." + expected},
      {"[\n{\"text\": \"one\"},\n{\"text\": \"two\"}\n]\n", name + " is a JSON array: line 1 begins one"},
      {"\n  [{\"text\": \"one\"},\n{\"text\": \"two\"}]\n", name + " is a JSON array: line 2 begins one"},
      {"[{\"text\": \"one\"}]\n", "none of the 1 records can be used. The first: " + file + ":1: The record is not"},
      {"\xef\xbb\xbf{\"text\": \"one\"}\n{\"text\": \"two\"}\n", name + " begins with a byte-order mark (EF BB BF)."},
      {std::string("\xff\xfe{\0", 4), name + " is UTF-16: it begins with a byte-order mark (FF FE)."},
      {"one\ntwo\n", "none of the 2 records can be used. The first: " + file + ":1: Expecting value (column 1)."}};
  for (const auto& [content, message] : cases) {
    write_text(file, content);
    try {
      preprocess(options_for({file}, folder / "new/folder/out"), tiny());
      ADD_FAILURE() << "taken: " << content;
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, message.size()), message) << error.what();
      EXPECT_NE(std::string(error.what()).find("Expected "), std::string::npos) << error.what();
      EXPECT_EQ(error.code(), ExitCode::kBadData) << content;
    }
    EXPECT_FALSE(std::filesystem::exists(folder / "new")) << "a folder is left: " << content;
  }
}

TEST(Preprocess, IsTheOnlyOneThatWritesToAPrefix) {
  TestFolder folder;
  write_text(folder / "a", "{\"text\": \"one\"}\n");
  const TokenStoreWriter other(folder / "out_text_document", TokenType::kUint16);
  EXPECT_EQ(
      error_of([&] { preprocess(options_for({folder / "a"}, folder / "out"), tiny()); }),
      concat("'", folder / "out_text_document.bin.tmp", "' is being written by another process. Wait until it has ",
             "ended, or give another name for the output."));
  EXPECT_TRUE(std::filesystem::exists(folder / "out_text_document.bin.tmp")) << "the other's";
}

TEST(Preprocess, FindsEveryProblemOfItsOptionsAtOnce) {
  TestFolder folder;
  PreprocessOptions options = options_for({folder / "none", folder.path(), "-", "-"}, folder / "out");
  options.json_keys = {"text", "title", "text"};
  Problems problems;
  check(options, &tiny(), problems);
  EXPECT_EQ(problems.messages(),
            (std::vector<std::string>{
                concat("--input ", folder / "none", ": no such file"),
                concat("--input ", folder.path(), " is a folder; name the files in it, for example ", folder.path(),
                       "/*.jsonl"),
                "--input names standard input (-) more than once", "--json-keys names 'text' more than once"}));
}

// A process killed half-way leaves no index.
TEST(Preprocess, LooksUnfinishedWhenKilled) {
  TestFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      preprocess(options_for({folder / "pipe"}, folder / "out"), tiny());
    } catch (...) {
    }
    ::_exit(0);
  }
  std::ofstream pipe(folder / "pipe", std::ios::binary);
  pipe << large_corpus() << std::flush;  // more than the child reads ahead: it has begun to write
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(std::filesystem::exists(folder / "out_text_document.idx"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out_text_document.bin"));
  EXPECT_TRUE(std::filesystem::exists(folder / "out_text_document.idx.tmp"));
  const std::string unfinished = read_file(folder / "out_text_document.idx.tmp").substr(0, 7);
  EXPECT_NE(unfinished, "MMIDIDX") << "not even under its real name would it be an index";

  // The lock died with the child: the next run takes its files over.
  preprocess(options_for({"tests/data/owt-20.jsonl"}, folder / "out"), tiny());
  expect_same_store(folder / "out_text_document", "tests/data/owt-20_text_document");
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_NE(entry.path().extension(), ".tmp") << entry.path();
}

}  // namespace
}  // namespace espalier::data
