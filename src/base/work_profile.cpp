#include "base/work_profile.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/format.h"

namespace espalier {
namespace {

std::string name_of(const WorkProfile::Row& row) {
  const ProductShape& shape = row.shape;
  return concat(to_string(row.work), " ", row.what,
                shape == ProductShape{} ? "" : concat(" ", shape.m, "x", shape.n, "x", shape.k));
}

class HostTimer : public WorkProfile::Timer {
 public:
  size_t mark() override {
    marks_.push_back(Clock::now());
    return marks_.size() - 1;
  }
  void finish() override {}
  double seconds(size_t from, size_t to) const override {
    return std::chrono::duration<double>(marks_[to] - marks_[from]).count();
  }
  void clear() override { marks_.clear(); }

 private:
  using Clock = std::chrono::steady_clock;
  std::vector<Clock::time_point> marks_;
};

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

WorkProfile::WorkProfile(Listener* listener, Timer* device)
    : listener_(listener),
      clock_(device == nullptr ? std::make_unique<HostTimer>() : nullptr),
      timer_(device == nullptr ? clock_.get() : device) {}

WorkProfile::~WorkProfile() {
  if (active_) set_current(nullptr);
}

void WorkProfile::set_current(WorkProfile* profile) {
  if (clock_ != nullptr)
    WorkSpan::current() = profile;
  else
    WorkSpan::of_all_threads() = profile;
}

void WorkProfile::start() {
  ESPALIER_CHECK(!active_ && WorkSpan::current() == nullptr && WorkSpan::of_all_threads() == nullptr,
                 "this thread is being profiled");
  rows_.clear();
  spans_.clear();
  timer_->clear();
  start_ = timer_->mark();
  active_ = true;
  set_current(this);
}

void WorkProfile::stop() {
  ESPALIER_CHECK(active_, "no profile was started");
  for (const auto& [thread, spans] : open_) ESPALIER_CHECK(spans.empty(), "a span is open");
  set_current(nullptr);
  active_ = false;
  const size_t end = timer_->mark();
  timer_->finish();
  seconds_ = timer_->seconds(start_, end);
  for (const Span& span : spans_) {
    const double seconds = timer_->seconds(span.from, span.to);
    rows_[span.row].seconds += seconds;
    if (span.parent != kOutside) rows_[spans_[span.parent].row].seconds -= seconds;
  }
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
  const std::lock_guard lock(mutex_);
  const size_t row = row_of(work, what, shape);
  if (listener_ != nullptr) listener_->begin(name_of(rows_[row]));
  std::vector<size_t>& open = open_here();
  spans_.push_back({row, 0, 0, open.empty() ? kOutside : open.back()});
  open.push_back(spans_.size() - 1);
  spans_.back().from = timer_->mark();
}

void WorkProfile::end() {
  const std::lock_guard lock(mutex_);
  std::vector<size_t>& open = open_here();
  Span& span = spans_[open.back()];
  open.pop_back();
  span.to = timer_->mark();
  ++rows_[span.row].calls;
  if (listener_ != nullptr) listener_->end();
}

std::vector<WorkProfile::Row> WorkProfile::rows() const {
  std::vector<Row> rows = rows_;
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return rows;
}

}  // namespace espalier
