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
// A span that nothing profiles costs a look at two pointers. Work that other threads do for a span (OpenMP) is part of
// it. A device does its work after the span that launched it has ended: there a Timer marks its queue instead of
// reading a clock, and the spans of all threads count, because autograd goes backward in threads of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
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

  // Marks of one sequence of work, numbered from 0, and the time between any two.
  class Timer {
   public:
    virtual ~Timer() = default;
    virtual size_t mark() = 0;
    virtual void finish() = 0;                                 // returns when every mark has been passed
    virtual double seconds(size_t from, size_t to) const = 0;  // of marks before finish(), from <= to
    virtual void clear() = 0;
  };

  // `device`: times spans, of every thread, whose work it does. Both outlive the profile.
  explicit WorkProfile(Listener* listener = nullptr, Timer* device = nullptr);
  ~WorkProfile();
  WorkProfile(const WorkProfile&) = delete;
  WorkProfile& operator=(const WorkProfile&) = delete;

  // One profile of a thread at a time, one with a device in a process. Outside every span.
  void start();
  void stop();
  bool active() const { return active_; }

  double seconds() const { return seconds_; }  // from start to stop
  std::vector<Row> rows() const;               // the longest first

 private:
  friend class WorkSpan;
  static constexpr size_t kOutside = SIZE_MAX;
  struct Span {
    size_t row, from, to;
    size_t parent;  // the span around it, or kOutside
  };

  void begin(Work work, const char* what, const ProductShape& shape);
  void end();
  size_t row_of(Work work, const char* what, const ProductShape& shape);
  void set_current(WorkProfile* profile);

  std::vector<size_t>& open_here() { return open_[std::this_thread::get_id()]; }

  Listener* listener_;
  std::unique_ptr<Timer> clock_;  // of this machine, where no device has its own
  Timer* timer_;
  bool active_ = false;
  double seconds_ = 0;
  size_t start_ = 0;  // a mark
  std::vector<Row> rows_;
  std::mutex mutex_;  // spans of several threads
  std::vector<Span> spans_;
  std::map<std::thread::id, std::vector<size_t>> open_;  // spans that have not ended, from the outermost
};

class WorkSpan {
 public:
  // `what` outlives the span.
  WorkSpan(Work work, const char* what, const ProductShape& shape = {}) : profile_(current()) {
    if (profile_ == nullptr) profile_ = of_all_threads().load(std::memory_order_relaxed);
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
  static std::atomic<WorkProfile*>& of_all_threads() {
    static std::atomic<WorkProfile*> profile{nullptr};
    return profile;
  }
  WorkProfile* profile_;
};

}  // namespace espalier
