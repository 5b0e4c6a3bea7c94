// Compares what a step measures of a document with its thresholds: the first that fails decides. For a dry run, the
// same code continues to the end and reports all values.
//
//   void judge(const Document& document, Judge& judge) const {
//     if (!judge.least("short", length, least_)) return;
//     judge.most("symbols", share_of_symbols, most_);
//   }
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "curate/document.h"

namespace espalier::curate {

struct Measure {
  std::string name;  // the reason of the documents that it drops
  double value = 0;
  std::optional<double> threshold;  // none: nothing is dropped
  bool is_least = false;            // lower values are dropped, else higher ones
};

class Judge {
 public:
  // `all`: where every value goes, and nothing ends the judgement.
  explicit Judge(std::vector<Measure>* all = nullptr) : all_(all) {}

  // False: the document is judged.
  bool least(const char* name, double value, std::optional<double> threshold) {
    return note({name, value, threshold, true}, threshold && value < *threshold);
  }
  bool most(const char* name, double value, std::optional<double> threshold) {
    return note({name, value, threshold, false}, threshold && value > *threshold);
  }
  // Values without a threshold.
  bool drop_if(bool drops, std::string reason, std::optional<double> value = {}) {
    if (all_ != nullptr || !drops) return true;
    fate_ = Fate::dropped(std::move(reason), value);
    return false;
  }
  Fate fate() { return std::move(fate_); }

 private:
  bool note(Measure measure, bool drops) {
    if (all_ != nullptr) {
      all_->push_back(std::move(measure));
      return true;
    }
    if (drops) fate_ = Fate::dropped(std::move(measure.name), measure.value, measure.threshold);
    return !drops;
  }

  std::vector<Measure>* all_;
  Fate fate_;
};

}  // namespace espalier::curate
