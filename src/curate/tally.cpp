#include "curate/tally.h"

#include <algorithm>
#include <cmath>

#include "base/format.h"

namespace espalier::curate {
namespace {

constexpr size_t kSampleBytes = 400, kBytesBefore = 80;
constexpr int kPercentiles[] = {1, 5, 10, 25, 50, 75, 90, 95, 99};

// From `begin` on, cut between characters.
std::string excerpt(std::string_view text, size_t begin) {
  const auto inside = [&](size_t at) { return at < text.size() && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80; };
  begin = std::min(begin, text.size());
  while (inside(begin)) ++begin;
  size_t end = std::min(text.size(), begin + kSampleBytes);
  while (inside(end)) --end;
  return std::string(text.substr(begin, end - begin));
}

nlohmann::ordered_json json_of(MeasureTally& measure) {
  nlohmann::ordered_json json = {{"measure", measure.name}, {"drops", measure.is_least ? "below" : "above"}};
  if (measure.threshold) json["threshold"] = *measure.threshold;
  json["documents"] = measure.values.size();
  json["beyond"] = measure.num_beyond();
  nlohmann::ordered_json& percentiles = json["percentiles"];
  for (const int percent : kPercentiles) percentiles[std::to_string(percent)] = measure.percentile(percent / 100.0);
  return json;
}

}  // namespace

bool StepTally::wants_sample(const std::string& reason) const {
  return static_cast<size_t>(std::count_if(samples.begin(), samples.end(),
                                           [&](const Sample& sample) { return sample.reason == reason; })) < kSamples;
}

void StepTally::note_change(int64_t number, std::string_view before, std::string_view after) {
  ++num_changed;
  if (!wants_sample("")) return;
  const auto differ = std::mismatch(before.begin(), before.end(), after.begin(), after.end());
  const auto at = static_cast<size_t>(differ.first - before.begin());
  const size_t begin = at > kBytesBefore ? at - kBytesBefore : 0;
  samples.push_back({number, "", excerpt(before, begin), excerpt(after, begin)});
}

void StepTally::note_drop(const Document& document, std::string_view before, const std::string& reason) {
  ++dropped[reason];
  if (wants_sample(reason)) samples.push_back({document.number, reason, excerpt(before, 0), ""});
}

double MeasureTally::percentile(double share) {
  if (!std::is_sorted(values.begin(), values.end())) std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, values.size() - 1);
  if (values[below] == values[above]) return values[below];  // infinite ones too
  return values[below] + (values[above] - values[below]) * (place - std::floor(place));
}

int64_t MeasureTally::num_beyond() const {
  if (!threshold) return 0;
  return std::count_if(values.begin(), values.end(),
                       [&](double value) { return is_least ? value < *threshold : value > *threshold; });
}

MeasureTally& StepTally::measure_tally(const std::string& name, bool is_least, std::optional<double> threshold) {
  for (MeasureTally& measure : measures)
    if (measure.name == name && measure.is_least == is_least) return measure;
  measures.push_back({name, threshold, is_least, {}});
  return measures.back();
}

void StepTally::note_measures(const std::vector<Measure>& of_document) {
  for (const Measure& measure : of_document)
    measure_tally(measure.name, measure.is_least, measure.threshold).values.push_back(measure.value);
}

void StepTally::add(const StepTally& later) {
  num_in += later.num_in;
  num_out += later.num_out;
  num_changed += later.num_changed;
  bytes_in += later.bytes_in;
  bytes_out += later.bytes_out;
  for (const auto& [reason, count] : later.dropped) dropped[reason] += count;
  for (const Sample& sample : later.samples)
    if (wants_sample(sample.reason)) samples.push_back(sample);
  for (const MeasureTally& measure : later.measures) {
    std::vector<double>& values = measure_tally(measure.name, measure.is_least, measure.threshold).values;
    values.insert(values.end(), measure.values.begin(), measure.values.end());
  }
}

void InputTally::note_malformed(std::string description) {
  ++num_malformed;
  if (first_malformed.size() < kKept) first_malformed.push_back(std::move(description));
}

void InputTally::add(const InputTally& later) {
  num_records += later.num_records;
  num_documents += later.num_documents;
  num_replaced += later.num_replaced;
  num_malformed += later.num_malformed;
  for (const std::string& description : later.first_malformed)
    if (first_malformed.size() < kKept) first_malformed.push_back(description);
}

void LanguageTally::note(const Document& document, bool kept) {
  const std::string_view json = document.metadata.json("language");
  if (json.size() < 3 || json.front() != '"') return;
  const std::string_view code = json.substr(1, json.size() - 2);
  auto found = languages.find(code);
  if (found == languages.end()) found = languages.emplace(code, Counts{}).first;
  ++found->second.documents;
  found->second.kept += kept;
}

void LanguageTally::add(const LanguageTally& later) {
  for (const auto& [code, counts] : later.languages) {
    languages[code].documents += counts.documents;
    languages[code].kept += counts.kept;
  }
}

std::string LanguageTally::shares() const {
  constexpr size_t kShown = 4;
  std::vector<std::pair<std::string, Counts>> sorted(languages.begin(), languages.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.documents > b.second.documents; });
  std::string text;
  for (size_t at = 0; at < std::min(kShown, sorted.size()); ++at)
    text += concat(at == 0 ? "kept of " : ", ", sorted[at].first, " ",
                   100 * sorted[at].second.kept / sorted[at].second.documents, " %");
  return text + (sorted.size() > kShown ? concat(", ", sorted.size() - kShown, " more") : "");
}

nlohmann::ordered_json to_json(StepTally tally) {
  nlohmann::ordered_json samples = nlohmann::ordered_json::array();
  for (const Sample& sample : tally.samples)
    samples.push_back(
        {{"number", sample.number}, {"reason", sample.reason}, {"before", sample.before}, {"after", sample.after}});
  int64_t num_dropped = 0;
  for (const auto& [reason, count] : tally.dropped) num_dropped += count;
  nlohmann::ordered_json json = {
      {"in", tally.num_in},           {"kept", tally.num_in - num_dropped}, {"dropped", num_dropped},
      {"out", tally.num_out},         {"changed", tally.num_changed},       {"bytes_in", tally.bytes_in},
      {"bytes_out", tally.bytes_out}, {"dropped_by_reason", tally.dropped}, {"samples", samples}};
  for (MeasureTally& measure : tally.measures) json["measures"].push_back(json_of(measure));
  return json;
}

nlohmann::ordered_json to_json(const InputTally& tally) {
  return {{"records", tally.num_records},
          {"documents", tally.num_documents},
          {"malformed", tally.num_malformed},
          {"first_malformed", tally.first_malformed},
          {"replaced_characters", tally.num_replaced}};
}

StepTally step_tally_of(const nlohmann::ordered_json& json) {
  StepTally tally;
  tally.num_in = json.at("in");
  tally.num_out = json.at("out");
  tally.num_changed = json.at("changed");
  tally.bytes_in = json.at("bytes_in");
  tally.bytes_out = json.at("bytes_out");
  tally.dropped = json.at("dropped_by_reason").get<std::map<std::string, int64_t>>();
  for (const nlohmann::ordered_json& sample : json.at("samples"))
    tally.samples.push_back({sample.at("number"), sample.at("reason"), sample.at("before"), sample.at("after")});
  return tally;
}

InputTally input_tally_of(const nlohmann::ordered_json& json) {
  InputTally tally;
  tally.num_records = json.at("records");
  tally.num_documents = json.at("documents");
  tally.num_malformed = json.at("malformed");
  tally.num_replaced = json.at("replaced_characters");
  tally.first_malformed = json.at("first_malformed").get<std::vector<std::string>>();
  return tally;
}

}  // namespace espalier::curate
