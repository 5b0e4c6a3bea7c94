#include "curate/report.h"

#include <algorithm>

#include "base/file.h"
#include "base/format.h"
#include "base/version.h"

namespace espalier::curate {
namespace {

using Json = nlohmann::ordered_json;

std::string share_of(int64_t part, int64_t whole) {
  return whole == 0 ? "-" : format_fixed(100.0 * static_cast<double>(part) / static_cast<double>(whole), 1) + " %";
}

// The significant digits: 1500, 0.1875, 1.204e+06.
std::string shown_number(const Json& number, int digits) {
  return number.is_number() ? format_printf("%.*g", digits, number.get<double>()) : "-";
}

// One line that Markdown takes for text.
std::string as_code(const std::string& text) {
  constexpr size_t kShown = 160;
  std::string line;
  for (const char c : text.substr(0, kShown)) line += c == '\n' || c == '\r' || c == '\t' ? ' ' : c == '`' ? '\'' : c;
  while (!line.empty() && (static_cast<uint8_t>(line.back()) & 0x80) != 0) line.pop_back();
  return "`" + (line.empty() ? std::string(" ") : line) + "`";
}

void append_samples(const Json& step, std::string& text) {
  for (const Json& sample : step.at("samples")) {
    const auto reason = sample.at("reason").get<std::string>();
    text += concat("- document ", sample.at("number").get<int64_t>(), ", ",
                   reason.empty() ? "changed" : "dropped, " + reason, ": ",
                   as_code(sample.at("before").get<std::string>()), "\n");
    if (reason.empty()) text += concat("  became ", as_code(sample.at("after").get<std::string>()), "\n");
  }
}

void append_measures(const Json& step, std::string& text) {
  if (!step.contains("measures")) return;
  text += "\n| measure | drops | of documents |";
  std::string rule = "|---|---|---|";
  for (const auto& [percent, value] : step.at("measures")[0].at("percentiles").items()) {
    text += concat(" ", percent, " % |");
    rule += "---|";
  }
  text += "\n" + rule + "\n";
  for (const Json& measure : step.at("measures")) {
    const bool has_threshold = measure.contains("threshold");
    text += concat("| ", measure.at("measure").get<std::string>(), " | ",
                   has_threshold
                       ? concat(measure.at("drops").get<std::string>(), " ", shown_number(measure.at("threshold"), 4))
                       : "-",
                   " | ", has_threshold ? share_of(measure.at("beyond"), measure.at("documents")) : "-", " |");
    for (const auto& [percent, value] : measure.at("percentiles").items())
      text += concat(" ", shown_number(value, 4), " |");
    text += "\n";
  }
}

void append_catalogue(const Json& outputs, std::string& text) {
  bool has_any = false;
  for (const Json& output : outputs)
    if (output.contains("catalogue")) {
      if (!has_any) text += "\n| output | key | values |\n|---|---|---|\n";
      has_any = true;
      for (const auto& [key, values] : output.at("catalogue").items())
        text += concat("| ", output.at("name").get<std::string>(), " | ", as_code(key), " | ",
                       as_code(data::describe_values(values.get<std::map<std::string, int64_t>>())), " |\n");
    }
}

void append_mix(const Json& mix, std::string& text) {
  text +=
      "\n## What a model sees\n\n| output | share | tokens for training | tokens read | times read |\n"
      "|---|---|---|---|---|\n";
  for (const Json& row : mix)
    text +=
        concat("| ", row.at("output").get<std::string>(), " | ", format_fixed(100 * row.at("share").get<double>(), 3),
               " % | ", format_count(row.at("train_tokens").get<int64_t>()), " | ",
               format_count(static_cast<int64_t>(row.at("tokens_read").get<double>())), " | ",
               format_fixed(row.at("epochs").get<double>(), 3), " |\n");
}

}  // namespace

void note_catalogue(const std::set<std::string>& keys, const Document& document, data::Catalogue& catalogue) {
  constexpr size_t kMostValues = 1000;
  for (const std::string& key : keys) {
    const std::string_view json = document.metadata.json(key);
    if (json.empty() || json == "null") continue;
    std::map<std::string, int64_t>& values = catalogue[key];
    const std::string value = document.metadata.text(key).value_or(std::string(json));
    ++values[values.size() < kMostValues || values.contains(value) ? value : "others"];
  }
}

Json report_as_json(const RunPlan& plan, const RunResult& result, const std::vector<GroupTally>& groups) {
  nlohmann::ordered_json steps = nlohmann::ordered_json::array(), outputs = nlohmann::ordered_json::array(),
                         files = nlohmann::ordered_json::array(), sources = nlohmann::ordered_json::array();
  for (size_t index = 0; index < plan.steps.size(); ++index) {
    nlohmann::ordered_json step = {{"step", plan.steps[index].name}};
    step.update(to_json(result.steps[index]));
    if (!result.facts[index].is_null()) step["facts"] = result.facts[index];
    steps.push_back(std::move(step));
  }
  for (const GroupTally& group : groups) {
    nlohmann::ordered_json output = {
        {"name", group.name}, {"file", group.file}, {"documents", group.num_documents}, {"bytes", group.bytes}};
    if (group.num_tokens >= 0) output["tokens"] = group.num_tokens;
    if (!group.catalogue.empty()) output["catalogue"] = group.catalogue;
    outputs.push_back(std::move(output));
  }
  for (const RunResult::File& file : result.files)
    files.push_back({{"file", file.name}, {"first_number", file.first_number}});
  for (const InputSource& source : plan.sources) {
    nlohmann::ordered_json metadata = nlohmann::ordered_json::object();
    for (const Metadata::Member& member : source.metadata)
      metadata[member.key] = nlohmann::ordered_json::parse(member.json);
    sources.push_back({{"name", source.name}, {"metadata", metadata}});
  }
  return {{"version", kVersion}, {"input", to_json(result.input)},
          {"sources", sources},  {"files", files},
          {"steps", steps},      {"outputs", outputs}};
}

std::string report_as_markdown(const Json& report) {
  const Json& input = report.at("input");
  const auto count = [](const Json& of, const char* key) { return format_count(of.at(key).get<int64_t>()); };
  std::string text = "# What the curation did\n\n";
  text += concat(count(input, "records"), " records, ", count(input, "documents"), " documents, ",
                 count(input, "malformed"), " records that are not documents.\n\n");
  for (const Json& description : input.at("first_malformed"))
    text += "- " + as_code(description.get<std::string>()) + "\n";
  text +=
      "\n## Steps\n\n| step | documents in | dropped | share | changed | bytes in | bytes out "
      "|\n|---|---|---|---|---|---|---|\n";
  for (const Json& step : report.at("steps"))
    text += concat("| ", step.at("step").get<std::string>(), " | ", count(step, "in"), " | ", count(step, "dropped"),
                   " | ", share_of(step.at("dropped"), step.at("in")), " | ", count(step, "changed"), " | ",
                   count(step, "bytes_in"), " | ", count(step, "bytes_out"), " |\n");
  text += "\n## Outputs\n\n| output | documents | bytes of text | tokens |\n|---|---|---|---|\n";
  for (const Json& group : report.at("outputs"))
    text += concat("| ", group.at("name").get<std::string>(), " | ", count(group, "documents"), " | ",
                   count(group, "bytes"), " | ", group.contains("tokens") ? count(group, "tokens") : "-", " |\n");
  append_catalogue(report.at("outputs"), text);
  if (report.contains("mix")) append_mix(report.at("mix"), text);
  for (const Json& step : report.at("steps")) {
    if (step.at("dropped_by_reason").empty() && step.at("samples").empty() && !step.contains("measures")) continue;
    text += concat("\n## ", step.at("step").get<std::string>(), "\n\n");
    for (const auto& [reason, dropped] : step.at("dropped_by_reason").items())
      text += concat("- dropped for ", reason, ": ", format_count(dropped.get<int64_t>()), " (",
                     share_of(dropped, step.at("in")), ")\n");
    append_samples(step, text);
    append_measures(step, text);
  }
  return text;
}

void write_reports(const Json& report, const std::filesystem::path& folder) {
  write_file_atomically(folder / "report.json", report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  write_file_atomically(folder / "report.md", report_as_markdown(report));
  write_file_atomically(folder / "report.html", report_as_html(report));
}

}  // namespace espalier::curate
