#include "data/task_examples.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "data/internal/task_reader.h"
#include "text/utf8.h"

namespace espalier::data {
namespace {

namespace fs = std::filesystem;

// What Python's \s is for a text.
bool is_python_blank(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

std::string close_up_full_stops(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text.compare(at, 3, " . ") == 0) {
      out += ". ";
      at += 3;
    } else {
      out += text[at++];
    }
  }
  return out;
}

// "data/RACE/dev/middle" -> "dev-middle", as upstream; other folders have their last name, files their stem.
std::string task_set_name(FinetuningTask task, const fs::path& path) {
  const fs::path clean = path.has_filename() ? path : path.parent_path();
  if (task != FinetuningTask::kRace) return clean.stem().string();
  const std::string text = clean.generic_string();
  const size_t found = text.rfind("RACE/");
  if (found == std::string::npos) return clean.filename().string();
  std::string name = text.substr(found + 5);
  std::replace(name.begin(), name.end(), '/', '-');
  return name;
}

}  // namespace

const TaskFacts& facts_of(FinetuningTask task) {
  static const TaskFacts race{"RACE", 4, 4, 128}, mnli{"MNLI", 3, 1, 0}, qqp{"QQP", 2, 1, 0};
  return task == FinetuningTask::kRace ? race : task == FinetuningTask::kMnli ? mnli : qqp;
}

std::string clean_task_text(std::string_view text) {
  std::string storage, spaced;
  int64_t num_replaced = 0;
  const std::string_view valid = text::repair_utf8(text, storage, num_replaced);
  bool after_blank = false;
  for (size_t at = 0; at < valid.size();) {
    const text::CodePoint point = text::decode_utf8(valid.data() + at);
    const auto bytes = static_cast<size_t>(point.num_bytes);
    const bool blank = is_python_blank(point.code);
    if (!blank) spaced += valid.substr(at, bytes);
    if (blank && !after_blank) spaced += ' ';
    after_blank = blank;
    at += bytes;
  }
  for (int pass = 0; pass < 3; ++pass) spaced = close_up_full_stops(spaced);
  return spaced;
}

namespace internal {

std::string_view strip_python_blanks(std::string_view text) {
  while (!text.empty()) {
    const text::CodePoint point = text::decode_utf8(text.data());
    if (!is_python_blank(point.code)) break;
    text.remove_prefix(static_cast<size_t>(point.num_bytes));
  }
  while (!text.empty()) {
    const char* const last = text::previous_utf8(text.data() + text.size());
    if (!is_python_blank(text::decode_utf8(last).code)) break;
    text = text.substr(0, static_cast<size_t>(last - text.data()));
  }
  return text;
}

void FileProblems::add(int64_t line, const std::string& what) {
  constexpr int64_t kShown = 5;
  if (++num_found_ <= kShown) problems_.add(file_, ", line ", line, ": ", what);
  if (num_found_ == kShown + 1) problems_.add(file_, ": more lines like these");
}

}  // namespace internal

TaskExamples read_task_examples(FinetuningTask task, const std::string& path, Problems& problems) {
  TaskExamples read;
  read.name = task_set_name(task, path);
  const size_t before = problems.messages().size();
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const bool is_folder = fs::is_directory(status);
  if (!fs::exists(status)) {
    problems.add(path, ": there is no such ", task == FinetuningTask::kRace ? "folder" : "file");
  } else if (task == FinetuningTask::kRace && !is_folder) {
    problems.add(path, " is a file; RACE is read from folders of *.txt, such as RACE/train/middle");
  } else if (task != FinetuningTask::kRace && is_folder) {
    problems.add(path, " is a folder; ", facts_of(task).name, " is read from .tsv files, which must be named");
  } else {
    try {
      if (task == FinetuningTask::kRace)
        internal::read_race(path, read, problems);
      else
        internal::read_sentence_pairs(task, path, read, problems);
    } catch (const UserError& unreadable) {
      problems.add(unreadable.what());
    }
    if (read.examples.empty() && problems.messages().size() == before) problems.add(path, " holds no examples");
  }
  return read;
}

}  // namespace espalier::data
