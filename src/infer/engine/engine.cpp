#include "infer/engine/engine.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace espalier::infer {

Engine::Engine(BatchModel& model, const text::Tokenizer* tokenizer, const EngineConfig& config)
    : model_(model),
      limits_{.shape = model.shape(),
              .has_text = tokenizer != nullptr,
              .max_choices = config.max_choices,
              .max_alternatives = config.max_alternatives},
      scheduler_(limits_.shape, config.scheduler),
      context_{.scheduler = scheduler_, .shape = limits_.shape, .tokenizer = tokenizer} {
  count();
}

Engine::~Engine() {
  for (const auto& [id, request] : requests_)
    if (request->encoded >= 0) model_.release(request->encoded);
}

uint64_t Engine::submit(Request request, EventCallback callback) {
  check_request(request, limits_);
  const std::lock_guard lock(mutex_);
  const uint64_t id = ++last_request_;
  inbox_.requests.push_back({id, {std::move(request), std::move(callback)}});
  arrived_.notify_all();
  return id;
}

void Engine::cancel(uint64_t request) {
  const std::lock_guard lock(mutex_);
  inbox_.cancelled.push_back(request);
  arrived_.notify_all();
}

bool Engine::wait(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, limit, [&] { return has_work_ || !inbox_.empty() || is_woken_; });
  is_woken_ = false;
  return has_work_ || !inbox_.empty();
}

void Engine::wake() {
  const std::lock_guard lock(mutex_);
  is_woken_ = true;
  arrived_.notify_all();
}

EngineCounters Engine::counters() const {
  const std::lock_guard lock(mutex_);
  EngineCounters counters = counters_;
  counters.num_waiting += static_cast<int64_t>(inbox_.requests.size());
  return counters;
}

bool Engine::step() {
  const bool had_news = take_inbox();
  const std::vector<Scheduler::Step> steps = scheduler_.plan();
  if (!steps.empty()) run(steps);
  count();
  return had_news || !steps.empty();
}

bool Engine::take_inbox() {
  Inbox inbox;
  {
    const std::lock_guard lock(mutex_);
    inbox = std::exchange(inbox_, {});
  }
  for (auto& [id, request] : inbox.requests) {
    ++totals_.num_requests;
    auto& active = requests_[id] =
        make_active_request(id, std::move(request.first), std::move(request.second), context_);
    active->start();
  }
  for (const uint64_t id : inbox.cancelled) {
    const auto request = requests_.find(id);
    if (request == requests_.end()) continue;
    request->second->end(FinishReason::kCancelled);
    forget_done(id);
  }
  return !inbox.empty();
}

void Engine::run(const std::vector<Scheduler::Step>& steps) {
  std::vector<TokenRun> runs;
  int64_t num_logits = 0;
  for (const Scheduler::Step& step : steps) {
    runs.push_back(run_of(step));
    num_logits += step.num_logits;
  }
  logits_.resize(static_cast<size_t>(num_logits * limits_.shape.vocab_size));
  model_.forward(runs, logits_.data());
  ++totals_.num_steps;
  for (const Scheduler::Step& step : steps) totals_.num_tokens_run += step.num_tokens;
  scheduler_.ran(steps);
  hand_out(steps);
}

TokenRun Engine::run_of(const Scheduler::Step& step) {
  const Sequence& sequence = *step.sequence;
  ActiveRequest& request = *requests_.at(sequence.order.request);
  if (limits_.shape.has_encoder && request.encoded < 0) request.encoded = model_.encode(request.request().encoder_ids);
  const auto ids = std::span(sequence.ids);
  return {.ids = ids.subspan(static_cast<size_t>(sequence.num_in_cache), static_cast<size_t>(step.num_tokens)),
          .first_position = sequence.num_in_cache,
          .pages = sequence.pages,
          .num_logits = step.num_logits,
          .whole = sequence.num_in_cache < sequence.num_whole,
          .is_long = sequence.is_long,
          .encoded = request.encoded};
}

// A request may end, and with it its other sequences, before their turn comes: its steps are skipped then.
void Engine::hand_out(const std::vector<Scheduler::Step>& steps) {
  std::vector<uint64_t> owners;
  for (const Scheduler::Step& step : steps) owners.push_back(step.sequence->order.request);
  const float* rows = logits_.data();
  for (size_t index = 0; index < steps.size(); ++index) {
    const auto& [sequence, num_tokens, num_logits] = steps[index];
    ActiveRequest& request = *requests_.at(owners[index]);
    if (num_logits > 0 && !request.is_done())
      request.take_rows(*sequence, sequence->num_in_cache - num_logits, rows, num_logits);
    rows += num_logits * limits_.shape.vocab_size;
  }
  for (const uint64_t owner : owners) forget_done(owner);
}

void Engine::forget_done(uint64_t id) {
  const auto request = requests_.find(id);
  if (request == requests_.end() || !request->second->is_done()) return;
  if (request->second->encoded >= 0) model_.release(request->second->encoded);
  switch (request->second->ended().value_or(FinishReason::kStop)) {
    case FinishReason::kCancelled: ++totals_.num_cancelled; break;
    case FinishReason::kFailed: ++totals_.num_failed; break;
    default: ++totals_.num_finished;
  }
  requests_.erase(request);
}

void Engine::count() {
  const PagePool& pool = scheduler_.pool();
  EngineCounters now = totals_;
  now.num_running = scheduler_.num_running() + scheduler_.num_parked();
  now.num_waiting = scheduler_.num_waiting();
  now.num_pages = pool.num_pages();
  now.num_pages_held = pool.num_held();
  now.num_pages_cached = pool.num_cached();
  now.num_tokens_generated = context_.num_generated;
  now.num_prefix_tokens = scheduler_.counters().num_prefix_tokens;
  now.num_preemptions = scheduler_.counters().num_preemptions;
  now.num_tokens_preempted = scheduler_.counters().num_recomputed_tokens;
  now.num_evictions = pool.num_evictions();
  const std::lock_guard lock(mutex_);
  counters_ = now;
  has_work_ = !requests_.empty();
}

}  // namespace espalier::infer
