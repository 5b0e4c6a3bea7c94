// What the steps did: counts and samples, added up block by block in the order of the input.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "curate/document.h"
#include "curate/judge.h"

namespace espalier::curate {

// A document that a step changed or dropped.
struct Sample {
  int64_t number = 0;
  std::string reason;         // empty: it was changed
  std::string before, after;  // the first kSampleBytes from a little before the first difference on
};

// All values of one measure of a dry run.
struct MeasureTally {
  std::string name;
  std::optional<double> threshold;
  bool is_least = false;
  std::vector<double> values;

  // The value below which that share (0 to 1) of the others lies, between two of them in proportion (numpy's default).
  // Sorts; of at least one value.
  double percentile(double share);
  int64_t num_beyond() const;  // values that the threshold drops
};

struct StepTally {
  static constexpr size_t kSamples = 5;  // of each reason, and of changes

  int64_t num_in = 0, num_out = 0, num_changed = 0;
  int64_t bytes_in = 0, bytes_out = 0;     // of text
  std::map<std::string, int64_t> dropped;  // by reason
  std::vector<Sample> samples;
  std::vector<MeasureTally> measures;  // of dry runs; of no stored shard

  void note_measures(const std::vector<Measure>& of_document);
  void note_change(int64_t number, std::string_view before, std::string_view after);
  void note_drop(const Document& document, std::string_view before, const std::string& reason);
  void add(const StepTally& later);

 private:
  MeasureTally& measure_tally(const std::string& name, bool is_least, std::optional<double> threshold);
  bool wants_sample(const std::string& reason) const;
};

// Records that are not documents.
struct InputTally {
  static constexpr size_t kKept = 10;
  int64_t num_records = 0, num_documents = 0, num_replaced = 0;  // U+FFFD in place of what is not UTF-8
  int64_t num_malformed = 0;
  std::vector<std::string> first_malformed;  // "crawl.jsonl:17: ..."

  void note_malformed(std::string description);
  void add(const InputTally& later);
};

// How many documents of each language there were, and how many of them stayed; for progress.
struct LanguageTally {
  struct Counts {
    int64_t documents = 0, kept = 0;
  };
  std::map<std::string, Counts, std::less<>> languages;

  // By the key "language", which the step of that name writes; a document without it counts for none.
  void note(const Document& document, bool kept);
  void add(const LanguageTally& later);
  // "kept of en 81 %, fr 64 %, 3 more": the most frequent first. Empty where no language is known.
  std::string shares() const;
};

// Sorts the values of measures.
nlohmann::ordered_json to_json(StepTally tally);
nlohmann::ordered_json to_json(const InputTally& tally);
// Of what to_json() wrote.
StepTally step_tally_of(const nlohmann::ordered_json& json);
InputTally input_tally_of(const nlohmann::ordered_json& json);

}  // namespace espalier::curate
