// Requests in, tokens and scores out: what generation, serving and evaluation share.
//
//   Engine engine(model, tokenizer, {});
//   engine.submit(request, [](const Event& event) { ... });
//   while (engine.step()) {}
//
// Requests may come at any time; a pass through the model runs what there is of all of them (scheduler.h). What a
// request is answered depends on nothing but the request and the model, to the last bit: docs/inference.md says why.
//
// submit(), cancel(), wait(), wake() and counters() may be called by any thread, step() by one. Events come from
// step().
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "infer/engine/active_request.h"
#include "infer/engine/check_request.h"

namespace espalier::infer {

struct EngineConfig {
  SchedulerConfig scheduler;
  int64_t max_choices = 128;
  int64_t max_alternatives = 256;
};

// As of the last step. Those in the second half only grow.
struct EngineCounters {
  int64_t num_running = 0, num_waiting = 0;  // texts
  int64_t num_pages = 0, num_pages_held = 0, num_pages_cached = 0;

  int64_t num_requests = 0, num_finished = 0, num_cancelled = 0, num_failed = 0;
  int64_t num_steps = 0, num_tokens_run = 0, num_tokens_generated = 0;
  int64_t num_prefix_tokens = 0;  // that a text began with and did not have to be run
  int64_t num_preemptions = 0, num_tokens_preempted = 0, num_evictions = 0;
};

class Engine {
 public:
  // Both must outlive it. Without a tokenizer answers have no text.
  Engine(BatchModel& model, const text::Tokenizer* tokenizer, const EngineConfig& config);
  ~Engine();

  // The request's number. A UserError says all that is wrong with it.
  uint64_t submit(Request request, EventCallback callback);
  // Nothing happens to one that has ended.
  void cancel(uint64_t request);
  // One pass. False if there was nothing to do. What the model throws passes through, and the requests are as they were
  // before; callbacks must not throw.
  bool step();
  // Until there is something to do or the time is over: whether there is.
  bool wait(std::chrono::milliseconds limit);
  // Ends the wait() that is under way, or the next one.
  void wake();

  EngineCounters counters() const;
  const RequestLimits& limits() const { return limits_; }

 private:
  struct Inbox {
    std::vector<std::pair<uint64_t, std::pair<Request, EventCallback>>> requests;
    std::vector<uint64_t> cancelled;
    bool empty() const { return requests.empty() && cancelled.empty(); }
  };

  bool take_inbox();
  void run(const std::vector<Scheduler::Step>& steps);
  TokenRun run_of(const Scheduler::Step& step);
  void hand_out(const std::vector<Scheduler::Step>& steps);
  void forget_done(uint64_t request);
  void count();

  BatchModel& model_;
  RequestLimits limits_;
  Scheduler scheduler_;
  RequestContext context_;
  std::map<uint64_t, std::unique_ptr<ActiveRequest>> requests_;
  std::vector<float> logits_;
  EngineCounters totals_;  // of the stepping thread

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  Inbox inbox_;
  uint64_t last_request_ = 0;
  bool has_work_ = false, is_woken_ = false;
  EngineCounters counters_;
};

}  // namespace espalier::infer
