// The program as a user meets it: runs it by bash in an empty folder and keeps what it printed.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <system_error>

#include "base/error.h"
#include "base/file.h"

namespace espalier {

namespace fs = std::filesystem;

struct Outcome {
  int exit_code = -1;
  std::string output, errors;
  double seconds = 0;
};

// What commands have left in their folders, until this process ends.
struct MadeFiles {
  struct Files {
    fs::path folder;
    Outcome outcome;
  };
  MadeFiles() = default;
  ~MadeFiles() {
    std::error_code ignored;
    fs::remove_all(root, ignored);
  }
  MadeFiles(const MadeFiles&) = delete;
  MadeFiles& operator=(const MadeFiles&) = delete;

  const fs::path root = fs::temp_directory_path() / concat("espalier_command_test_", ::getpid(), "_made");
  std::map<std::string, Files> by_command;
};

class Command : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "work");
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Runs `command` by bash in an empty folder, with the programs in front of PATH.
  Outcome bash(const std::string& command) const {
    std::ofstream(folder_ / "script") << command << "\n";
    const std::string programs = fs::path(ESPALIER_PROGRAM).parent_path();
    const std::string line =
        concat("cd ", (folder_ / "work").string(), " && PATH=", programs, ":$PATH bash ", (folder_ / "script").string(),
               " >", (folder_ / "out").string(), " 2>", (folder_ / "err").string());
    const auto start = std::chrono::steady_clock::now();
    const int status = std::system(line.c_str());
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return {WEXITSTATUS(status), read_file(folder_ / "out"), read_file(folder_ / "err"), seconds};
  }
  // As bash(), of what several tests begin with: what succeeds is done once in this process, and its files are copied
  // for every later test that gives the same command. What a test has written before must be the same as well.
  Outcome made_once(const std::string& command) const {
    static MadeFiles made;
    const auto copy = [](const fs::path& from, const fs::path& to) {
      EXPECT_EQ(std::system(concat("cp -a ", from.string(), "/. ", to.string()).c_str()), 0) << from;
    };
    if (const auto found = made.by_command.find(command); found != made.by_command.end()) {
      copy(found->second.folder, folder_ / "work");
      return found->second.outcome;
    }
    const Outcome outcome = bash(command);
    if (outcome.exit_code != 0) return outcome;
    const fs::path kept = made.root / std::to_string(made.by_command.size());
    fs::create_directories(kept);
    copy(folder_ / "work", kept);
    made.by_command[command] = {kept, outcome};
    return outcome;
  }
  std::string root() const { return fs::current_path(); }
  // Options of `train gpt`: 20 documents of OpenWebText and their tokenizer.
  std::string tiny_gpt_data() const {
    const std::string data = root() + "/tests/data/", vocabulary = data + "gpt2-tiny/";
    return concat("--data-path ", data, "owt-20_text_document --tokenizer-type GPT2BPETokenizer --vocab-file ",
                  vocabulary, "vocab.json --merge-file ", vocabulary, "merges.txt ");
  }

  const fs::path folder_ = fs::temp_directory_path() / concat("espalier_command_test_", ::getpid());
};

}  // namespace espalier
