// For the tests of this library: steps over lists of texts, and files that vanish with the test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "curate/run.h"

namespace espalier::curate::test {

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

 private:
  std::filesystem::path path_;
};

inline void write_text(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The step of that name with options as a recipe has them ("least = 3"). Problems fail the test.
inline std::unique_ptr<StepMaker> maker_of(const std::string& name, const std::string& toml) {
  const StepKind* kind = find_step_kind(name);
  if (kind == nullptr) throw UserError("no step " + name);
  std::unique_ptr<StepMaker> maker = kind->make();
  OptionTable table("test", "");
  maker->add_rows(table);
  Problems problems;
  table.parse_toml(toml, "test", problems);
  maker->check(problems);
  problems.raise();
  return maker;
}

// What is wrong with the options.
inline std::string problems_of(const std::string& name, const std::string& toml) {
  try {
    maker_of(name, toml);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

struct Applied {
  Fate fate;
  Document document;
  const std::string& text() const { return document.text; }
};

inline Applied apply(const std::string& name, const std::string& toml, const std::string& text,
                     const std::string& metadata = "{}") {
  const std::unique_ptr<StepMaker> maker = maker_of(name, toml);
  Applied applied;
  std::string line = metadata;
  line.insert(1, metadata == "{}" ? "\"text\": \"\"" : "\"text\": \"\", ");
  std::string reason;
  int64_t num_replaced = 0;
  EXPECT_TRUE(parse_document(line, "text", applied.document, reason, num_replaced)) << reason;
  applied.document.text = text;
  applied.fate = maker->make_step()->apply(applied.document);
  return applied;
}

}  // namespace espalier::curate::test
