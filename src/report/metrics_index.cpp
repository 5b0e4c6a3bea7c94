#include "report/metrics_index.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/file.h"
#include "report/json_line.h"

namespace espalier::report {
namespace {

constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

// Numbers, and true and false as 1 and 0.
bool read_value(std::string_view text, double& value) {
  if (text == "true" || text == "false") {
    value = text == "true" ? 1 : 0;
    return true;
  }
  value = number_of(text);
  return !text.starts_with('"') && !text.starts_with('[');
}

}  // namespace

void MetricsIndex::begin_anew() {
  ++generation_;
  position_ = 0;
  partial_.clear();
  steps_.clear();
  columns_.clear();
  evaluations_.clear();
}

void MetricsIndex::update() {
  constexpr int64_t kPieceBytes = int64_t{4} << 20;
  struct stat info = {};
  if (::stat(file_.c_str(), &info) != 0) {
    if (position_ > 0) begin_anew();
    return;
  }
  if (info.st_ino != inode_ || info.st_size < position_) begin_anew();
  inode_ = info.st_ino;
  if (info.st_size == position_) return;
  const InputFile file(file_);
  std::string piece;
  for (const int64_t end = info.st_size; position_ < end;) {
    piece.resize(static_cast<size_t>(std::min(kPieceBytes, end - position_)));
    file.read_at(piece.data(), piece.size(), position_);
    position_ += static_cast<int64_t>(piece.size());
    size_t begin = 0;
    for (size_t newline = 0; (newline = piece.find('\n', begin)) != std::string::npos; begin = newline + 1) {
      const std::string_view rest(piece.data() + begin, newline - begin);
      if (partial_.empty()) {
        line(rest);
      } else {
        line(partial_.append(rest));
        partial_.clear();
      }
    }
    partial_.append(piece, begin);
  }
}

const MetricsIndex::Column* MetricsIndex::find(const std::string& name) const {
  const auto found = std::find_if(columns_.begin(), columns_.end(), [&](const Column& it) { return it.name == name; });
  return found == columns_.end() ? nullptr : &*found;
}

void MetricsIndex::set(std::string_view prefix, std::string_view key, double value) {
  const auto is_it = [&](const Column& column) {
    const std::string_view name = column.name;
    if (prefix.empty()) return name == key;
    return name.size() == prefix.size() + 1 + key.size() && name.starts_with(prefix) && name[prefix.size()] == '/' &&
           name.ends_with(key);
  };
  size_t at = expected_column_;
  if (at >= columns_.size() || !is_it(columns_[at]))
    at = static_cast<size_t>(std::find_if(columns_.begin(), columns_.end(), is_it) - columns_.begin());
  if (at == columns_.size())
    columns_.push_back({std::string(prefix) + (prefix.empty() ? "" : "/") + std::string(key),
                        std::vector<float>(steps_.size(), kNoNumber)});
  expected_column_ = at + 1;
  found_.emplace_back(at, static_cast<float>(value));
}

// Losses by data set are numbers of the record; anything else that is nested is an evaluation: kind, set, name.
void MetricsIndex::read_nested(std::string_view key, std::string_view value) {
  for_each_member(value, [&](std::string_view inner_key, std::string_view inner) {
    if (!inner.starts_with('{')) {
      double number = 0;
      if (read_value(inner, number)) set(key, inner_key, number);
      return;
    }
    for_each_member(inner, [&](std::string_view name, std::string_view text) {
      found_evaluations_.push_back({0, std::string(key), std::string(inner_key), std::string(name), number_of(text)});
    });
  });
}

bool MetricsIndex::read_members(std::string_view text, int64_t& step) {
  step = -1;
  found_.clear();
  found_evaluations_.clear();
  expected_column_ = 0;
  const bool whole = for_each_member(text, [&](std::string_view key, std::string_view value) {
    double number = 0;
    if (key == "step") {
      number = number_of(value);
      if (number >= 0 && number < 9e15) step = static_cast<int64_t>(number);
    } else if (value.starts_with('{')) {
      read_nested(key, value);
    } else if (key != "end" && read_value(value, number)) {
      set("", key, number);
    }
  });
  return whole && step >= 0;
}

void MetricsIndex::take_back(int64_t step) {
  if (!steps_.empty() && steps_.back() >= step) {
    const auto kept = std::lower_bound(steps_.begin(), steps_.end(), step) - steps_.begin();
    steps_.resize(static_cast<size_t>(kept));
    for (Column& column : columns_) column.values.resize(static_cast<size_t>(kept));
    ++generation_;
  }
  if (!evaluations_.empty() && evaluations_.back().step >= step)
    std::erase_if(evaluations_, [&](const Evaluation& old) { return old.step >= step; });
}

void MetricsIndex::line(std::string_view text) {
  int64_t step = 0;
  if (!read_members(text, step)) return;
  if (!found_evaluations_.empty()) {
    const bool is_later = evaluations_.empty() || evaluations_.back().step < step;
    for (Evaluation& evaluation : found_evaluations_) {
      evaluation.step = step;
      if (!is_later)
        std::erase_if(evaluations_, [&](const Evaluation& old) {
          return old.step >= step && old.kind == evaluation.kind && old.set == evaluation.set &&
                 old.name == evaluation.name;
        });
      evaluations_.push_back(evaluation);
    }
    return;
  }
  take_back(step);
  steps_.push_back(step);
  for (const auto& [at, value] : found_) {
    std::vector<float>& values = columns_[at].values;
    values.resize(steps_.size(), kNoNumber);
    values.back() = value;
  }
  for (Column& column : columns_) column.values.resize(steps_.size(), kNoNumber);
}

Bins bin(const MetricsIndex& index, const std::string& name, int64_t from, int64_t to, int64_t most_bins) {
  Bins bins;
  bins.first_step = from;
  if (to < from || most_bins < 1) return bins;
  const int64_t range = to - from + 1;
  bins.width = (range + most_bins - 1) / most_bins;
  const auto num_bins = static_cast<size_t>((range + bins.width - 1) / bins.width);
  bins.lowest.assign(num_bins, kNoNumber);
  bins.highest.assign(num_bins, kNoNumber);
  const MetricsIndex::Column* column = index.find(name);
  if (column == nullptr) return bins;
  const std::vector<int64_t>& steps = index.steps();
  auto at = static_cast<size_t>(std::lower_bound(steps.begin(), steps.end(), from) - steps.begin());
  for (size_t into = 0; into < num_bins; ++into) {
    const int64_t end = std::min(from + static_cast<int64_t>(into + 1) * bins.width, to + 1);
    const auto stop = static_cast<size_t>(std::lower_bound(steps.begin() + static_cast<int64_t>(at), steps.end(), end) -
                                          steps.begin());
    float lowest = std::numeric_limits<float>::infinity(), highest = -lowest;
    for (; at < stop; ++at) {  // a NaN is neither lower nor higher
      const float value = column->values[at];
      if (value < lowest) lowest = value;
      if (value > highest) highest = value;
    }
    if (lowest > highest) continue;
    bins.lowest[into] = lowest;
    bins.highest[into] = highest;
  }
  return bins;
}

}  // namespace espalier::report
