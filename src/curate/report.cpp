#include "curate/report.h"

#include <algorithm>

#include "base/format.h"
#include "base/version.h"

namespace espalier::curate {
namespace {

std::string share_of(int64_t part, int64_t whole) {
  return whole == 0 ? "-" : format_fixed(100.0 * static_cast<double>(part) / static_cast<double>(whole), 1) + " %";
}

int64_t num_dropped(const StepTally& tally) {
  int64_t count = 0;
  for (const auto& [reason, dropped] : tally.dropped) count += dropped;
  return count;
}

// One line, that Markdown takes for text.
std::string as_code(const std::string& text) {
  constexpr size_t kShown = 160;
  std::string line;
  for (const char c : text.substr(0, kShown)) line += c == '\n' || c == '\r' || c == '\t' ? ' ' : c == '`' ? '\'' : c;
  while (!line.empty() && (static_cast<uint8_t>(line.back()) & 0x80) != 0) line.pop_back();
  return "`" + (line.empty() ? std::string(" ") : line) + "`";
}

void append_samples(const StepTally& tally, std::string& text) {
  for (const Sample& sample : tally.samples) {
    text += concat("- document ", sample.number, ", ", sample.reason.empty() ? "changed" : "dropped, " + sample.reason,
                   ": ", as_code(sample.before), "\n");
    if (sample.reason.empty()) text += concat("  became ", as_code(sample.after), "\n");
  }
}

}  // namespace

nlohmann::ordered_json report_as_json(const RunPlan& plan, const RunResult& result,
                                      const std::vector<GroupTally>& groups) {
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

std::string report_as_markdown(const RunPlan& plan, const RunResult& result, const std::vector<GroupTally>& groups) {
  std::string text = "# What the curation did\n\n";
  text += concat(format_count(result.input.num_records), " records, ", format_count(result.input.num_documents),
                 " documents, ", format_count(result.input.num_malformed), " records that are no document.\n\n");
  for (const std::string& description : result.input.first_malformed) text += "- " + as_code(description) + "\n";
  text +=
      "\n## Steps\n\n| step | documents in | dropped | share | changed | bytes in | bytes out "
      "|\n|---|---|---|---|---|---|---|\n";
  for (size_t index = 0; index < plan.steps.size(); ++index) {
    const StepTally& tally = result.steps[index];
    text +=
        concat("| ", plan.steps[index].name, " | ", format_count(tally.num_in), " | ", format_count(num_dropped(tally)),
               " | ", share_of(num_dropped(tally), tally.num_in), " | ", format_count(tally.num_changed), " | ",
               format_count(tally.bytes_in), " | ", format_count(tally.bytes_out), " |\n");
  }
  text += "\n## Outputs\n\n| output | documents | bytes of text | tokens |\n|---|---|---|---|\n";
  for (const GroupTally& group : groups)
    text += concat("| ", group.name, " | ", format_count(group.num_documents), " | ", format_count(group.bytes), " | ",
                   group.num_tokens < 0 ? "-" : format_count(group.num_tokens), " |\n");
  for (size_t index = 0; index < plan.steps.size(); ++index) {
    const StepTally& tally = result.steps[index];
    if (tally.dropped.empty() && tally.samples.empty()) continue;
    text += concat("\n## ", plan.steps[index].name, "\n\n");
    for (const auto& [reason, count] : tally.dropped)
      text += concat("- dropped for ", reason, ": ", format_count(count), " (", share_of(count, tally.num_in), ")\n");
    append_samples(tally, text);
  }
  return text;
}

}  // namespace espalier::curate
