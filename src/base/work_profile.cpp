#include "base/work_profile.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"

namespace espalier {
namespace {

std::string name_of(const WorkProfile::Row& row) {
  const ProductShape& shape = row.shape;
  return concat(to_string(row.work), " ", row.what,
                shape == ProductShape{} ? "" : concat(" ", shape.m, "x", shape.n, "x", shape.k));
}

}  // namespace

std::string to_string(Work work) {
  switch (work) {
    case Work::kProduct: return "product";
    case Work::kAttention: return "attention";
    case Work::kNorm: return "norm";
    case Work::kActivation: return "activation";
    case Work::kEmbedding: return "embedding";
    case Work::kDropout: return "dropout and residual";
    case Work::kRotary: return "rotary positions";
    case Work::kLoss: return "loss";
    case Work::kOptimizer: return "optimizer";
    case Work::kData: return "data";
    case Work::kCommunication: return "communication";
  }
  ESPALIER_CHECK(false, "unknown kind of work");
  return "";
}

WorkProfile::~WorkProfile() {
  if (active_) WorkSpan::current() = nullptr;
}

void WorkProfile::start() {
  ESPALIER_CHECK(!active_ && WorkSpan::current() == nullptr, "this thread is being profiled");
  WorkSpan::current() = this;
  active_ = true;
  rows_.clear();
  start_ = Clock::now();
}

void WorkProfile::stop() {
  ESPALIER_CHECK(active_ && open_.empty(), "a span is open");
  seconds_ = std::chrono::duration<double>(Clock::now() - start_).count();
  WorkSpan::current() = nullptr;
  active_ = false;
}

// There are a few dozen rows, and a span of a kernel takes microseconds at least: a search is cheap enough.
size_t WorkProfile::row_of(Work work, const char* what, const ProductShape& shape) {
  const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const Row& row) {
    return row.work == work && row.shape == shape && row.what == what;
  });
  if (found != rows_.end()) return static_cast<size_t>(found - rows_.begin());
  rows_.push_back({.work = work, .what = what, .shape = shape});
  return rows_.size() - 1;
}

void WorkProfile::begin(Work work, const char* what, const ProductShape& shape) {
  const size_t row = row_of(work, what, shape);
  if (listener_ != nullptr) listener_->begin(name_of(rows_[row]));
  open_.push_back({row, Clock::now(), {}});
}

void WorkProfile::end() {
  const Open span = open_.back();
  open_.pop_back();
  const Clock::duration whole = Clock::now() - span.start;
  Row& row = rows_[span.row];
  ++row.calls;
  row.seconds += std::chrono::duration<double>(whole - span.inside).count();
  if (!open_.empty()) open_.back().inside += whole;
  if (listener_ != nullptr) listener_->end();
}

std::vector<WorkProfile::Row> WorkProfile::rows() const {
  std::vector<Row> rows = rows_;
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return rows;
}

}  // namespace espalier
