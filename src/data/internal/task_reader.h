// Readers of data/task_examples.h, one for each kind of file.
#pragma once

#include <string>
#include <string_view>

#include "data/task_examples.h"

namespace espalier::data::internal {

// Python's strip() of valid UTF-8.
std::string_view strip_python_blanks(std::string_view text);

// What is wrong with the lines of one file: the first few, and that there are more.
class FileProblems {
 public:
  FileProblems(std::string file, Problems& problems) : file_(std::move(file)), problems_(problems) {}
  void add(int64_t line, const std::string& what);

 private:
  std::string file_;
  Problems& problems_;
  int64_t num_found_ = 0;
};

void read_race(const std::string& folder, TaskExamples& read, Problems& problems);
void read_sentence_pairs(FinetuningTask task, const std::string& file, TaskExamples& read, Problems& problems);

}  // namespace espalier::data::internal
