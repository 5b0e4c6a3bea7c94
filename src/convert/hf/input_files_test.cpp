// Links, pipes and folders where files of a model are expected.
#include "convert/hf/input_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "convert/tokenizer_files.h"

namespace espalier::convert::input_files_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class InputFiles : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(model_);
    write_file_atomically(root_ / "secret", "root:x:0:0\n");
    write_file_atomically(model_ / "config.json", "{}");
  }
  void TearDown() override { fs::remove_all(root_); }
  template <class Use>
  static std::string message_of(const Use& use) {
    try {
      use();
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::kBadData);
      return error.what();
    }
    return "nothing was refused";
  }

  const fs::path root_ = fs::temp_directory_path() / ("espalier_input_files_" + std::to_string(::getpid()));
  const fs::path model_ = root_ / "model";
};

TEST_F(InputFiles, ALinkThatLeavesTheFolderIsRefusedWithItsTarget) {
  fs::create_symlink(root_ / "secret", model_ / "tokenizer.json");
  for (const std::string& said : {message_of([&] { file_of_folder(model_, "tokenizer.json"); }),
                                  message_of([&] { check_files_of_folder(model_); }),
                                  message_of([&] { find_tokenizer(model_, 7, root_ / "kept"); })}) {
    EXPECT_THAT(said, HasSubstr((model_ / "tokenizer.json").string() + "' is a link to '"));
    EXPECT_THAT(said, HasSubstr("secret', outside the folder that is imported"));
  }
  fs::remove(model_ / "tokenizer.json");
  fs::create_symlink("../secret", model_ / "model.safetensors");
  EXPECT_THAT(message_of([&] { check_files_of_folder(model_); }), HasSubstr("outside the folder"));
}

TEST_F(InputFiles, ALinkWithinTheFolderAndIntoTheCachesBlobsIsFollowed) {
  fs::create_directories(model_ / "files");
  write_file_atomically(model_ / "files" / "t", "{}");
  fs::create_symlink("files/t", model_ / "tokenizer.json");
  EXPECT_EQ(file_of_folder(model_, "tokenizer.json"), model_ / "tokenizer.json");
  const fs::path cached = root_ / "models--a--b" / "snapshots" / "0123";
  fs::create_directories(cached);
  fs::create_directories(root_ / "models--a--b" / "blobs");
  write_file_atomically(root_ / "models--a--b" / "blobs" / "feed", "{}");
  fs::create_symlink("../../blobs/feed", cached / "config.json");
  EXPECT_EQ(file_of_folder(cached, "config.json"), cached / "config.json");
  fs::create_symlink("../../../secret", cached / "merges.txt");
  EXPECT_THAT(message_of([&] { file_of_folder(cached, "merges.txt"); }), HasSubstr("outside the folder"));
}

TEST_F(InputFiles, PipesDevicesFoldersAndDeadLinksAreNamed) {
  ASSERT_EQ(::mkfifo((model_ / "vocab.json").c_str(), 0600), 0);
  EXPECT_THAT(message_of([&] { file_of_folder(model_, "vocab.json"); }),
              HasSubstr("is a pipe (FIFO); expected a file"));
  fs::create_directories(model_ / "merges.txt");
  EXPECT_THAT(message_of([&] { file_of_folder(model_, "merges.txt"); }), HasSubstr("is a folder"));
  fs::create_symlink("nowhere", model_ / "tokenizer.model");
  EXPECT_THAT(message_of([&] { file_of_folder(model_, "tokenizer.model"); }),
              HasSubstr("is a link to 'nowhere', which cannot be followed"));
  EXPECT_EQ(file_of_folder(model_, "tokenizer.json"), std::nullopt);
}

TEST_F(InputFiles, WhatIsNoJsonIsNotCopied) {
  write_file_atomically(model_ / "special_tokens_map.json", "root:x:0:0\n");
  EXPECT_THAT(message_of([&] { find_tokenizer(model_, 7, root_ / "kept"); }),
              HasSubstr("special_tokens_map.json': expected JSON"));
  write_file_atomically(model_ / "special_tokens_map.json", "{}");
  write_file_atomically(model_ / "merges.txt", "\xff\xfe\x01");
  EXPECT_THAT(message_of([&] { find_tokenizer(model_, 7, root_ / "kept"); }), HasSubstr("merges.txt': expected UTF-8"));
}

}  // namespace
}  // namespace espalier::convert::input_files_test
