#include "curate/fates.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/file.h"
#include "base/format.h"
#include "base/json_fields.h"
#include "curate/compressed.h"

namespace espalier::curate {
namespace {

using Json = nlohmann::ordered_json;

// Of a line that begins with {"n":
int64_t number_of(std::string_view line) {
  int64_t number = -1;
  std::from_chars(line.data() + std::string_view("{\"n\":").size(), line.data() + line.size(), number);
  return number;
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

int64_t number_of_place(const Json& index, const std::string& document) {
  if (const std::optional<int64_t> number = whole_number(document)) return *number;
  const size_t colon = document.rfind(':');
  const std::optional<int64_t> line =
      colon == std::string::npos ? std::nullopt : whole_number(std::string_view(document).substr(colon + 1));
  if (!line || *line < 1)
    throw UserError(concat("--document ", document, ": expected a number from 0, or FILE:LINE, with lines from 1"),
                    ExitCode::kUsage);
  const std::string file = document.substr(0, colon);
  const Json& files = index.at("files");
  for (size_t at = 0; at < files.size(); ++at) {
    if (files[at].at("file") != file) continue;
    const auto first = files[at].at("first_number").get<int64_t>();
    const std::vector<int64_t> ends = index.at("shard_ends");
    const int64_t end = at + 1 < files.size() ? files[at + 1].at("first_number").get<int64_t>()
                        : ends.empty()        ? first
                                              : ends.back();
    if (*line <= end - first) return first + *line - 1;
    throw UserError(concat("--document ", document, ": the file had ", format_counted(end - first, "record")),
                    ExitCode::kUsage);
  }
  throw UserError(concat("--document ", document, ": no input was called ", file), ExitCode::kUsage);
}

std::string sentence_of(const Json& fate, const Json& index) {
  if (fate.contains("f")) return concat("was forgotten: ", fate.at("f").get<std::string>());
  if (fate.contains("o")) {
    const Json& output = index.at("outputs").at(fate.at("o").get<size_t>());
    return concat("stayed: line ", fate.at("l").get<int64_t>(), " of ", output.get<std::string>());
  }
  const int step = fate.at("s");
  if (step < 0) return concat("was not a document: ", fate.at("r").get<std::string>());
  std::string text =
      concat("dropped by step ", step + 1, ", ", index.at("steps").at(static_cast<size_t>(step)).get<std::string>(),
             ": ", fate.at("r").get<std::string>());
  if (fate.contains("v")) text += " " + format_shortest(fate.at("v").get<double>());
  if (fate.contains("t")) text += ", against " + format_shortest(fate.at("t").get<double>());
  return text;
}

}  // namespace

std::string place_line(int64_t number, size_t output, int64_t line) {
  return concat("{\"n\":", number, ",\"o\":", output, ",\"l\":", line, "}\n");
}

std::string forgotten_line(int64_t number, const std::string& reason) {
  return Json({{"n", number}, {"f", reason}}).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::filesystem::path fate_shard_file(const std::filesystem::path& fates_folder, size_t shard) {
  return fates_folder / (format_printf("%08zu", shard) + ".zst");
}

Json read_fate_index(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "fates" / "index.json";
  if (!std::filesystem::exists(file))
    throw UserError(concat("'", folder.string(), "' holds no finished curation: it has no fates/index.json"),
                    ExitCode::kMissingInput);
  Json index = parse_json<Json>(read_file(file), file.string());
  read_fields(concat("'", file.string(), "'"), [&] {
    for (const Json& one : index.at("files")) {
      one.at("file").get<std::string>();
      one.at("first_number").get<int64_t>();
    }
    for (const char* names : {"steps", "outputs"}) index.at(names).get<std::vector<std::string>>();
    index.at("shard_ends").get<std::vector<int64_t>>();
  });
  return index;
}

int64_t document_number(const Json& index, const std::string& document) {
  const int64_t number = number_of_place(index, document);
  const std::vector<int64_t> ends = index.at("shard_ends");
  if (ends.empty() || number >= ends.back())
    throw UserError(concat("--document ", document, ": there were ", format_count(ends.empty() ? 0 : ends.back()),
                           " records, numbered from 0"),
                    ExitCode::kUsage);
  return number;
}

FateWriter::FateWriter(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::filesystem::create_directories(folder_);
}

void FateWriter::write_shard(const std::string& lines, int64_t next_number) {
  std::vector<std::string_view> sorted;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size() - 1) + 1;
    sorted.push_back(std::string_view(lines).substr(at, end - at));
    at = end;
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](std::string_view a, std::string_view b) { return number_of(a) < number_of(b); });
  std::string text;
  text.reserve(lines.size());
  for (const std::string_view line : sorted) text += line;
  if (text.empty()) text = "\n";
  write_file_atomically(fate_shard_file(folder_, ends_.size()), compress(text));
  ends_.push_back(next_number);
}

void FateWriter::finish(const RunPlan& plan, const RunResult& result, const std::vector<GroupTally>& groups) {
  Json steps = Json::array(), outputs = Json::array(), files = Json::array();
  for (const PlannedStep& step : plan.steps) steps.push_back(step.name);
  for (const GroupTally& group : groups) outputs.push_back(group.file);
  for (const RunResult::File& file : result.files)
    files.push_back({{"file", file.name}, {"first_number", file.first_number}});
  const Json index = {{"steps", steps}, {"outputs", outputs}, {"files", files}, {"shard_ends", ends_}};
  write_file_atomically(folder_ / "index.json", index.dump(1) + "\n");
}

std::vector<std::string> explain_fate(const std::filesystem::path& folder, const std::string& document) {
  const std::filesystem::path fates = folder / "fates";
  const Json index = read_fate_index(folder);
  const int64_t number = document_number(index, document);
  const std::vector<int64_t> ends = index.at("shard_ends");
  const size_t shard = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), number) - ends.begin());
  const std::filesystem::path file = fate_shard_file(fates, shard);
  std::vector<std::string> sentences;
  read_fields(concat("'", file.string(), "'"), [&] {
    for (const std::string& line : split(read_compressed(file), '\n'))
      if (!line.empty() && number_of(line) == number)
        sentences.push_back(concat("document ", number, " ", sentence_of(Json::parse(line), index)));
  });
  if (sentences.empty()) sentences.push_back(concat("document ", number, " was cut into pieces of which none stayed"));
  return sentences;
}

}  // namespace espalier::curate
