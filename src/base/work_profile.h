// Where the time of a thread goes: named pieces of work, each with its calls and the time spent in it and in nothing
// further down.
//
//   void attention(...) {
//     const WorkSpan span(Work::kAttention, "forward");
//   ...
//   WorkProfile profile;
//   profile.start();       // spans of this thread count from here on; those of other threads never do
//   attention(...);
//   profile.stop();
//   for (const WorkProfile::Row& row : profile.rows()) ...
//
// A span that nothing profiles costs one look at a thread-local pointer. Work that other threads do for a span (OpenMP)
// is part of it; work that a device does after the span has ended is not: on a GPU the times are those of launching.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace espalier {

enum class Work : int32_t {
  kProduct,  // matrix products, by shape
  kAttention,
  kNorm,
  kActivation,
  kEmbedding,
  kDropout,
  kRotary,
  kLoss,
  kOptimizer,
  kData,
  kCommunication,  // with the wait for other ranks
};
std::string to_string(Work work);  // "product", "attention", ...

// m x n results of k multiply-adds each; all 0 for work that is no product.
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  auto operator<=>(const ProductShape&) const = default;
};

class WorkProfile {
 public:
  struct Row {
    Work work = Work::kProduct;
    std::string what;  // "forward", "all-reduce"
    ProductShape shape;
    int64_t calls = 0;
    double seconds = 0;  // without the spans inside
  };
  // Told of each span of this thread as it begins and ends, for a trace.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void begin(const std::string& name) = 0;
    virtual void end() = 0;
  };

  explicit WorkProfile(Listener* listener = nullptr) : listener_(listener) {}
  ~WorkProfile();
  WorkProfile(const WorkProfile&) = delete;
  WorkProfile& operator=(const WorkProfile&) = delete;

  // One profile of a thread at a time. Outside every span.
  void start();
  void stop();
  bool active() const { return active_; }

  double seconds() const { return seconds_; }  // from start to stop
  std::vector<Row> rows() const;               // the longest first

 private:
  friend class WorkSpan;
  using Clock = std::chrono::steady_clock;
  struct Open {  // a span that has not ended
    size_t row;
    Clock::time_point start;
    Clock::duration inside;  // of the spans in it
  };

  void begin(Work work, const char* what, const ProductShape& shape);
  void end();
  size_t row_of(Work work, const char* what, const ProductShape& shape);

  Listener* listener_;
  bool active_ = false;
  double seconds_ = 0;
  Clock::time_point start_;
  std::vector<Row> rows_;
  std::vector<Open> open_;
};

class WorkSpan {
 public:
  // `what` outlives the span.
  WorkSpan(Work work, const char* what, const ProductShape& shape = {}) : profile_(current()) {
    if (profile_ != nullptr) profile_->begin(work, what, shape);
  }
  ~WorkSpan() {
    if (profile_ != nullptr) profile_->end();
  }
  WorkSpan(const WorkSpan&) = delete;
  WorkSpan& operator=(const WorkSpan&) = delete;

 private:
  friend class WorkProfile;
  static WorkProfile*& current() {
    thread_local WorkProfile* profile = nullptr;
    return profile;
  }
  WorkProfile* profile_;
};

}  // namespace espalier
