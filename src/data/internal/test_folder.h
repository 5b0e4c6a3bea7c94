// For the tests of this library: a folder that vanishes with the test, and what an error says.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "data/token_store.h"

namespace espalier::data::test_files {

class TestFolder {
 public:
  TestFolder() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() /
            concat("espalier-", info->test_suite_name(), "-", info->name(), "-", ::getpid());
    std::filesystem::create_directories(path_);
  }
  ~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestFolder(const TestFolder&) = delete;
  TestFolder& operator=(const TestFolder&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

inline void write_text(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// Documents of 1 to 13 tokens, whose ids tell document and place.
inline std::string write_numbered(const std::string& prefix, int32_t num_documents, int32_t first_id) {
  TokenStoreWriter writer(prefix, TokenType::kInt32);
  for (int32_t document = 0; document < num_documents; ++document) {
    std::vector<int32_t> ids(static_cast<size_t>(1 + document * 7 % 13));
    for (size_t at = 0; at < ids.size(); ++at) ids[at] = first_id + 100 * document + static_cast<int32_t>(at);
    writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
  return prefix;
}

// What the UserError thrown by `action` says; fails the test if there is none.
template <class Action>
std::string error_of(Action action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no UserError was thrown";
  return "";
}

}  // namespace espalier::data::test_files
