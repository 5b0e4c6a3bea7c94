#include "eval/document_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/format.h"
#include "base/json.h"
#include "data/line_reader.h"
#include "data/parquet.h"
#include "data/token_files.h"
#include "text/utf8.h"

namespace espalier::eval {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kEndings = {".jsonl", ".jsonl.gz", ".jsonl.zst", ".jsonl.xz", ".tsv", ".tsv.gz"};

// The names at the top of what the paths name: "answers[].atext" -> "answers".
std::set<std::string> top_fields(const std::vector<std::string>& paths) {
  std::set<std::string> names;
  for (const std::string& path : paths) names.insert(path.substr(0, path.find_first_of(".[")));
  return names;
}

Json read_record(std::string_view line, const std::string& place, const std::set<std::string>& wanted) {
  const Json record = parse_json<Json>(line, place, [&](int depth, Json::parse_event_t event, Json& parsed) {
    const bool is_top_key = depth == 1 && event == Json::parse_event_t::key;
    return !is_top_key || wanted.empty() || wanted.contains(parsed.get_ref<const std::string&>());
  });
  if (!record.is_object()) throw UserError(place + ": expected a JSON object", ExitCode::kBadData);
  return record;
}

Json read_row(std::string_view line, const std::string& place, const std::vector<std::string>& names) {
  if (text::valid_utf8_prefix(line) != line.size())
    throw UserError(concat(place, ": byte ", text::valid_utf8_prefix(line) + 1, " of the line is not UTF-8"),
                    ExitCode::kBadData);
  const std::vector<std::string> cells = split(std::string(line), '\t');
  if (cells.size() != names.size())
    throw UserError(concat(place, ": ", format_counted(static_cast<int64_t>(cells.size()), "field"),
                           "; the first line names ", names.size()),
                    ExitCode::kBadData);
  Json record;
  for (size_t i = 0; i < cells.size(); ++i) record[names[i]] = cells[i];
  return record;
}

std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

bool is_parquet(const std::string& file) {
  char magic[4] = {};
  std::ifstream(file, std::ios::binary).read(magic, sizeof(magic));
  return std::string_view(magic, sizeof(magic)) == "PAR1";
}

}  // namespace

bool is_table(const std::string& file) {
  const std::string name = fs::path(file).filename();
  return name.ends_with(".tsv") || name.find(".tsv.") != std::string::npos;
}

std::string how_to_convert_parquet(const std::string& file, const std::string& target) {
  return concat("'", file,
                "' is a Parquet file, which is read once 'scripts/setup --parquet' has built what that takes. Or ",
                "convert it with: python3 -c \"import pandas; ", "pandas.read_parquet('", file, "').to_json('", target,
                "', orient='records', lines=True, force_ascii=False)\"");
}

std::vector<Document> read_documents(const std::string& file, const std::vector<std::string>& wanted) {
  if (is_parquet(file) && !data::has_parquet())
    throw UserError(how_to_convert_parquet(file, fs::path(file).replace_extension(".jsonl")), ExitCode::kBadData);
  const std::set<std::string> names = top_fields(wanted);
  std::vector<Document> documents;
  std::vector<std::string> columns;
  Problems problems;
  data::LineReader reader({file});
  int64_t number = 0;
  for (std::string_view line; reader.next(line);) {
    ++number;
    line = without_line_end(line);
    if (line.empty()) continue;
    if (is_table(file) && columns.empty()) {
      columns = split(std::string(line), '\t');
      continue;
    }
    const std::string place = concat(file, ":", number);
    try {
      documents.push_back({is_table(file) ? read_row(line, place, columns) : read_record(line, place, names), place});
    } catch (const UserError& error) {
      problems.add(error.what());
      if (problems.messages().size() == kMostProblems) break;
    }
  }
  problems.raise(ExitCode::kBadData);
  if (documents.empty()) throw UserError(concat("'", file, "' has no document"), ExitCode::kBadData);
  return documents;
}

DataFiles::DataFiles(const std::vector<std::string>& words, const std::vector<std::string>& tasks, Problems& problems) {
  if (tasks.empty()) return;  // none is known, which was reported: a file is nobody's
  for (const std::string& word : words) {
    const size_t equals = word.find('=');
    const std::string task = word.substr(0, equals);
    const auto is_named = [&](const std::string& name) { return task == name || task.starts_with(name + "."); };
    if (equals != std::string::npos && std::any_of(tasks.begin(), tasks.end(), is_named))
      named_[task] = word.substr(equals + 1);
    else if (fs::is_directory(word))
      folders_.push_back(word);
    else if (!fs::exists(word)) {
      misses_some_ = true;
      problems.add("--data ", word, ": no such file or folder",
                   equals == std::string::npos ? "" : concat(", and ", task, " is not one of the tasks"));
    } else if (tasks.size() == 1)
      named_[tasks[0]] = word;
    else
      problems.add("--data ", word, " is a file, but there are ", tasks.size(),
                   " tasks: give a folder, or name the task as TASK=", word);
  }
}

std::string DataFiles::find(const std::string& task, Problems& problems, const std::vector<std::string>& others) const {
  if (const auto named = named_.find(task); named != named_.end()) {
    if (fs::is_regular_file(named->second)) return named->second;
    const std::string other = data::describe_no_file(named->second);
    problems.add("--data ", task, "=", named->second,
                 other.empty() ? ": no such file" : concat(" is ", other, "; the task is read from a file"));
    return "";
  }
  for (const std::string& folder : folders_) {
    for (const std::string& ending : kEndings)
      if (const fs::path file = fs::path(folder) / (task + ending); fs::is_regular_file(file)) return file;
    for (const std::string& name : others)
      if (const fs::path file = fs::path(folder) / name; fs::is_regular_file(file)) return file;
    if (const fs::path file = fs::path(folder) / (task + ".parquet"); fs::exists(file)) {
      if (data::has_parquet()) return file;
      problems.add("task ", task, ": ", how_to_convert_parquet(file, fs::path(folder) / (task + ".jsonl")));
      return "";
    }
  }
  if (misses_some_) return "";  // it may be there
  problems.add(
      "task ", task, ": no ", others.empty() ? task + ".jsonl (or .tsv; .gz, .zst and .xz too)" : join(others, ", "),
      folders_.empty() ? "" : " in " + join(folders_, ", "), "; 'espalier eval --list-data' says what it holds");
  return "";
}

}  // namespace espalier::eval
