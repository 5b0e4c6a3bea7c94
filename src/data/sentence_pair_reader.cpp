// MNLI and QQP: tables with a line of names, columns between tabs. Blanks around a line are not columns, as upstream
// has it.
#include <algorithm>
#include <charconv>
#include <optional>

#include "base/format.h"
#include "base/log.h"
#include "data/internal/task_reader.h"
#include "data/line_reader.h"
#include "text/utf8.h"

namespace espalier::data::internal {
namespace {

constexpr size_t kMnliTestColumns = 10, kQqpTestColumns = 3, kQqpColumns = 6;
constexpr const char* kMnliLabels[] = {"contradiction", "entailment", "neutral"};

std::vector<std::string_view> columns_of(std::string_view line) {
  std::vector<std::string_view> columns;
  for (line = strip_python_blanks(line);;) {
    const size_t tab = line.find('\t');
    columns.push_back(strip_python_blanks(line.substr(0, tab)));
    if (tab == std::string_view::npos) return columns;
    line.remove_prefix(tab + 1);
  }
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

struct PairReader {
  FinetuningTask task;
  TaskExamples& read;
  FileProblems found;

  bool begin(const std::vector<std::string_view>& names);
  void add(int64_t line, const std::vector<std::string_view>& columns);

 private:
  void add_mnli(int64_t line, const std::vector<std::string_view>& columns);
  void add_qqp(int64_t line, const std::vector<std::string_view>& columns);
  void add_pair(int64_t line, std::string_view uid, std::string_view a, std::string_view b, int64_t label);
};

bool PairReader::begin(const std::vector<std::string_view>& names) {
  const size_t found_columns = names.size();
  if (task == FinetuningTask::kMnli) {
    read.has_labels = found_columns != kMnliTestColumns;
    if (found_columns >= kMnliTestColumns) return true;
    found.add(1, concat("the names of ", found_columns, " columns; MNLI has 10 without labels and more with them"));
    return false;
  }
  read.has_labels = found_columns != kQqpTestColumns;
  if (found_columns == kQqpTestColumns || found_columns == kQqpColumns) return true;
  found.add(1, concat("the names of ", found_columns, " columns; QQP has 6, or 3 without labels"));
  return false;
}

void PairReader::add(int64_t line, const std::vector<std::string_view>& columns) {
  if (task == FinetuningTask::kMnli)
    add_mnli(line, columns);
  else
    add_qqp(line, columns);
}

void PairReader::add_mnli(int64_t line, const std::vector<std::string_view>& columns) {
  if (columns.size() < kMnliTestColumns)
    return found.add(line, concat(columns.size(), " columns; expected 10 or more, with the sentences in 9 and 10"));
  int64_t label = 0;
  if (read.has_labels) {
    const auto name = std::find(std::begin(kMnliLabels), std::end(kMnliLabels), columns.back());
    if (name == std::end(kMnliLabels))
      return found.add(line, concat("the label '", columns.back(), "' is not contradiction, entailment or neutral"));
    label = name - std::begin(kMnliLabels);
  }
  add_pair(line, columns[0], columns[8], columns[9], label);
}

void PairReader::add_qqp(int64_t line, const std::vector<std::string_view>& columns) {
  if (!read.has_labels) {
    if (columns.size() != kQqpTestColumns) return found.add(line, concat(columns.size(), " columns; expected 3"));
    return add_pair(line, columns[0], columns[1], columns[2], 0);
  }
  if (columns.size() != kQqpColumns || columns[3].empty() || columns[4].empty()) {
    ++read.num_skipped;
    return;
  }
  const std::optional<int64_t> label = whole_number(columns[5]);
  if (!label || *label > 1) return found.add(line, concat("the label '", columns[5], "' is neither 0 nor 1"));
  add_pair(line, columns[0], columns[3], columns[4], *label);
}

void PairReader::add_pair(int64_t line, std::string_view uid, std::string_view a, std::string_view b, int64_t label) {
  const std::optional<int64_t> number = whole_number(uid);
  if (!number) return found.add(line, concat("the number '", uid, "' of the pair is not a whole number"));
  if (a.empty() || b.empty()) return found.add(line, "a sentence is empty");
  read.examples.push_back(
      {{clean_task_text(a)}, std::make_shared<const std::string>(clean_task_text(b)), label, *number});
}

}  // namespace

void read_sentence_pairs(FinetuningTask task, const std::string& file, TaskExamples& read, Problems& problems) {
  PairReader pairs{task, read, FileProblems(file, problems)};
  LineReader reader({file});
  int64_t number = 0;
  std::string storage;
  for (std::string_view line; reader.next(line);) {
    int64_t num_replaced = 0;
    const auto columns = columns_of(text::repair_utf8(line, storage, num_replaced));
    if (++number > 1)
      pairs.add(number, columns);
    else if (!pairs.begin(columns))
      return;
  }
}

}  // namespace espalier::data::internal
