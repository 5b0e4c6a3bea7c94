// Files of tokenizers that are no such files, or that would take all memory or time: refused in words of our own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "text/hf_tokenizer.h"
#include "text/tokenizer.h"

namespace espalier::text {
namespace hostile_files_test {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class HostileFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("espalier_hostile_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // A tokenizer.json of the letters a and b with these parts.
  void write_tokenizer(const json& parts) {
    json file = json::parse(R"({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})");
    file.update(parts);
    write_file_atomically(folder_ / "tokenizer.json", file.dump());
  }
  template <class Work>
  static std::string message_of(Work&& work, ExitCode code) {
    try {
      work();
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "nothing was thrown";
  }
  std::string encoding(std::string_view text) {
    return message_of([&] { load_hf_tokenizer(folder_)->encode(text); }, ExitCode::kBadData);
  }
  std::string opening(const std::filesystem::path& path, ExitCode code) {
    return message_of([&] { open_tokenizer(path); }, code);
  }

  std::filesystem::path folder_;
};

json sequence(const char* list, const json& step, int count) {
  json steps = json::array();
  for (int i = 0; i < count; ++i) steps.push_back(step);
  return {{"type", "Sequence"}, {list, steps}};
}

const json kDoubling = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};

TEST_F(HostileFiles, NormalizersThatDoubleATextAgainAndAgain) {
  write_tokenizer({{"normalizer", sequence("normalizers", kDoubling, 60)}});
  EXPECT_THAT(encoding("aaaa"), HasSubstr("tokenizer.json.normalizer: its rules make a text of 4 bytes longer than "
                                          "1,048,832 bytes, the most that is accepted"));
  write_tokenizer({{"normalizer", sequence("normalizers", kDoubling, 3)}});
  EXPECT_EQ(load_hf_tokenizer(folder_)->encode("ab").size(), 9u) << "eight a and a b";
}

TEST_F(HostileFiles, AReplacementOfAMegabyteForEveryLetter) {
  json replace = kDoubling;
  replace["content"] = std::string(1 << 20, 'a');
  write_tokenizer({{"normalizer", replace}});
  EXPECT_THAT(encoding(std::string(1 << 20, 'a')), HasSubstr("longer than 68,157,440 bytes"));
}

TEST_F(HostileFiles, PreTokenizersThatDoubleATextAgainAndAgain) {
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  write_tokenizer({{"pre_tokenizer", sequence("pretokenizers", bytes, 60)}});
  EXPECT_THAT(encoding("\u00e9"), HasSubstr("tokenizer.json.pre_tokenizer: its rules make a text of 2 bytes longer"));
  write_tokenizer({{"pre_tokenizer", sequence("pretokenizers", bytes, 1000)}});
  EXPECT_THAT(encoding("a"), HasSubstr("pre_tokenizer: it has 1000 steps; at most 64 are read"));
}

TEST_F(HostileFiles, DecodersThatDoubleATextAgainAndAgain) {
  write_tokenizer({{"decoder", sequence("decoders", kDoubling, 60)}});
  const auto decode = [&] { load_hf_tokenizer(folder_)->decode(std::vector<int32_t>{0, 0, 1}); };
  EXPECT_THAT(message_of(decode, ExitCode::kBadData), HasSubstr("decoder: its rules make a text of 3 bytes longer"));
}

TEST_F(HostileFiles, AUnigramOfFourHundredPrefixes) {
  json pieces = json::array({json::array({"<unk>", 0.0})});
  for (int length = 1; length <= 400; ++length) pieces.push_back(json::array({std::string(length, 'a'), -length}));
  write_tokenizer({{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", pieces}}}});
  EXPECT_THAT(encoding(std::string(1'000'000, 'a')),
              HasSubstr("a word of 1,000,000 bytes takes more than 164,000,000 steps"));
  EXPECT_EQ(load_hf_tokenizer(folder_)->encode(std::string(800, 'a')).size(), 2u);
}

TEST_F(HostileFiles, AnExpressionThatGoesBackWithoutEnd) {
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a+)+$"}}}, {"behavior", "Isolated"}, {"invert", false}};
  write_tokenizer({{"pre_tokenizer", split}});
  EXPECT_THAT(encoding(std::string(40, 'a') + "b"),
              AllOf(HasSubstr("cannot be matched against a text of 41 bytes: it goes back over the text too often"),
                    Not(HasSubstr("match limit"))));
}

TEST_F(HostileFiles, APipe) {
  const std::filesystem::path pipe = folder_ / "tokenizer.json";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string expected = "'" + pipe.string() +
                               "' is a pipe (FIFO); a regular file is needed. Write its content to a file and name " +
                               "that.";
  EXPECT_EQ(opening(folder_, ExitCode::kBadData), expected);
  for (const char* name : {"vocab.json", "vocab.txt", "x.model", "x.tiktoken"}) {
    ASSERT_EQ(::mkfifo((folder_ / name).c_str(), 0600), 0);
    EXPECT_THAT(opening(folder_ / name, ExitCode::kBadData), HasSubstr("is a pipe (FIFO); a regular file is needed"));
  }
}

TEST_F(HostileFiles, APointerOfGitLfs) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid "
      "sha256:17a208233d2ee8d8c83b23bc214df737c44806a1919f444e89b31e586c"
      "d956ba\nsize 14500471\n";
  for (const char* name : {"tokenizer.json", "vocab.json", "vocab.txt", "x.model", "x.tiktoken"}) {
    write_file_atomically(folder_ / name, pointer);
    EXPECT_THAT(
        opening(folder_ / name, ExitCode::kBadData),
        HasSubstr("is a pointer of Git LFS to a file of 14500471 bytes, which was not fetched. Run 'git lfs pull'"))
        << name;
  }
}

TEST_F(HostileFiles, ANameOnTheHub) {
  for (const char* name : {"gpt2", "bigscience/bloom"}) {
    for (const char* type : {"", "PretrainedFromHF", "HFTokenizer"}) {
      TokenizerOptions options;
      options.type = type;
      options.name_or_path = name;
      const auto load = [&] { *type == '\0' ? open_tokenizer(name) : load_tokenizer(options); };
      EXPECT_THAT(message_of(load, ExitCode::kMissingInput),
                  AllOf(HasSubstr("nothing is downloaded at run time"),
                        HasSubstr(std::string("download tokenizer.json and tokenizer_config.json from "
                                              "https://huggingface.co/") +
                                  name + "/tree/main into a folder")));
    }
  }
  EXPECT_EQ(opening(folder_ / "none/tokenizer.json", ExitCode::kMissingInput),
            "cannot open '" + (folder_ / "none/tokenizer.json").string() + "': the folder '" +
                (folder_ / "none").string() + "' does not exist");
}

TEST_F(HostileFiles, AFolderOfAnotherKindOfTokenizer) {
  const std::string folder = folder_.string();
  const auto load = [&] { load_hf_tokenizer(folder_); };
  EXPECT_THAT(message_of(load, ExitCode::kMissingInput), HasSubstr("holds no tokenizer.json. Nor does it hold"));
  write_file_atomically(folder_ / "tokenizer.model", "");
  EXPECT_THAT(message_of(load, ExitCode::kMissingInput),
              HasSubstr("--tokenizer-type GPTSentencePieceTokenizer --tokenizer-model " + folder + "/tokenizer.model"));
  write_file_atomically(folder_ / "vocab.json", "{}");
  write_file_atomically(folder_ / "merges.txt", "");
  EXPECT_THAT(message_of(load, ExitCode::kMissingInput),
              HasSubstr("--tokenizer-type GPT2BPETokenizer --vocab-file " + folder + "/vocab.json --merge-file " +
                        folder + "/merges.txt"));
}

TEST_F(HostileFiles, WhatIsNoJsonIsToldByLineAndColumn) {
  const auto said = [&](const std::string& content) {
    write_file_atomically(folder_ / "tokenizer.json", content);
    return opening(folder_, ExitCode::kBadData);
  };
  const std::string name = "'" + (folder_ / "tokenizer.json").string() + "': ";
  EXPECT_EQ(said("{\"a\": 1,\n \"\u00e9\": x}"), name + "line 2, column 7: expected JSON, found 'x'");
  EXPECT_EQ(said("{\"a\": 1"), name + "expected JSON, found the end of the text too early; it may be cut off");
  EXPECT_EQ(said(""), name + "expected JSON, found nothing");
  EXPECT_EQ(said("{\"a\": \"\xff\"}"), name + "line 1, column 8: expected JSON, found byte 0xff");
  EXPECT_THAT(said("<!DOCTYPE html>\n<html>"), HasSubstr("is a web page. Download the file itself"));
}

}  // namespace hostile_files_test
}  // namespace espalier::text
