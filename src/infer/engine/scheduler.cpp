#include "infer/engine/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace espalier::infer {
namespace {

int64_t num_logits_of(const Sequence& sequence, int64_t num_tokens) {
  const int64_t end = sequence.num_in_cache + num_tokens;
  return std::max<int64_t>(0, end - std::max(sequence.first_wanted, sequence.num_in_cache));
}

}  // namespace

Scheduler::Scheduler(const BatchModelShape& shape, const SchedulerConfig& config)
    : shape_(shape), config_(config), pool_(shape.num_pages, shape.page_tokens) {
  // A text takes one id and one row of a pass, and is never put off for lack of them.
  config_.max_step_tokens = std::max(config_.max_step_tokens, config_.max_sequences);
  config_.max_logit_rows = std::max(config_.max_logit_rows, config_.max_sequences);
}

void Scheduler::add(Sequence& sequence) { waiting_.insert(&sequence); }

void Scheduler::remove(Sequence& sequence) {
  const size_t num_held = running_.erase(&sequence) + parked_.erase(&sequence);
  waiting_.erase(&sequence);
  parked_without_pages_.erase(&sequence);
  if (num_held > 0) let_go(sequence);
}

void Scheduler::park(Sequence& sequence) {
  running_.erase(&sequence);
  parked_.insert(&sequence);
}

void Scheduler::unpark(Sequence& sequence) {
  if (parked_.erase(&sequence) > 0) running_.insert(&sequence);
  if (parked_without_pages_.erase(&sequence) > 0) waiting_.insert(&sequence);
}

std::vector<Scheduler::Step> Scheduler::plan() {
  std::vector<Step> steps;
  while (true) {
    Budget budget{.tokens = config_.max_step_tokens, .rows = config_.max_logit_rows};
    plan_text(budget, steps);
    if (!steps.empty()) budget.tokens = std::min(budget.tokens, config_.max_prompt_tokens_beside_texts);
    plan_prompts(budget, steps);
    admit(budget, steps);
    if (!steps.empty() || waiting_.empty()) return steps;
    // Only parked sequences hold pages, and what waits needs them.
    ESPALIER_CHECK(!parked_.empty(), waiting_.size(), " sequences wait and nothing holds a page");
    give_up(**parked_.rbegin());
  }
}

// In order, so that those that may have to give way come last.
void Scheduler::plan_text(Budget& budget, std::vector<Step>& steps) {
  const std::vector<Sequence*> running(running_.begin(), running_.end());
  for (Sequence* sequence : running) {
    if (!running_.contains(sequence) || sequence->num_left() != 1 || !grow(*sequence)) continue;
    const int64_t rows = num_logits_of(*sequence, 1);
    steps.push_back({sequence, 1, rows});
    --budget.tokens;
    budget.rows -= rows;
  }
}

void Scheduler::plan_prompts(Budget& budget, std::vector<Step>& steps) {
  for (Sequence* sequence : running_)
    if (sequence->num_left() > 1) plan_prompt(*sequence, budget, steps);
}

void Scheduler::admit(Budget& budget, std::vector<Step>& steps) {
  constexpr int kMostLookedAt = 256;  // of those whose beginning is coming, so that a long queue costs little
  int num_coming = 0;
  for (auto place = waiting_.begin(); place != waiting_.end() && num_coming < kMostLookedAt;) {
    if (budget.tokens <= 0 || num_running() + num_parked() >= config_.max_sequences) return;
    Sequence& sequence = **place;
    if (is_coming(sequence)) {
      ++place;
      ++num_coming;
      continue;
    }
    if (!get_pages(sequence)) return;
    place = waiting_.erase(place);
    running_.insert(&sequence);
    plan_prompt(sequence, budget, steps);
  }
}

// Whether a running prompt has yet to fill a page that the sequence could share.
bool Scheduler::is_coming(const Sequence& sequence) const {
  if (!shares()) return false;
  const auto usable = std::span(sequence.ids).first(static_cast<size_t>(sequence.first_wanted));
  return std::any_of(running_.begin(), running_.end(), [&](const Sequence* other) {
    if (other->num_left() <= 1 || other->is_long != sequence.is_long) return false;
    const auto end = std::mismatch(usable.begin(), usable.end(), other->ids.begin(), other->ids.end()).first;
    return (end - usable.begin()) / shape_.page_tokens > other->num_published;
  });
}

// As much as the budget allows; rows of logits end a piece early.
void Scheduler::plan_prompt(Sequence& sequence, Budget& budget, std::vector<Step>& steps) {
  const bool is_whole = sequence.num_in_cache < sequence.num_whole;
  int64_t count = std::min(sequence.num_left(), budget.tokens);
  if (is_whole) {
    if (sequence.num_whole > budget.tokens && budget.has_prompt) return;
    count = sequence.num_whole;
  }
  const int64_t num_without = std::max<int64_t>(0, sequence.first_wanted - sequence.num_in_cache);
  const int64_t most = num_without + std::max<int64_t>(0, budget.rows);
  if (is_whole && count > most) return;
  count = std::min(count, most);
  if (count <= 0) return;
  const int64_t rows = num_logits_of(sequence, count);
  steps.push_back({&sequence, count, rows});
  budget.tokens -= count;
  budget.rows -= rows;
  budget.has_prompt = true;
}

// Pages for all ids of a sequence that has none, cached ones first.
bool Scheduler::get_pages(Sequence& sequence) {
  const int64_t wanted = (sequence.end() + shape_.page_tokens - 1) / shape_.page_tokens;
  if (shares()) {
    // The id after which the first logits are wanted has to be run.
    const auto usable = static_cast<size_t>(sequence.first_wanted);
    FoundPrefix found = pool_.take_prefix(empty_prefix(sequence.is_long), std::span(sequence.ids).first(usable));
    sequence.pages = std::move(found.pages);
    sequence.prefix = found.prefix;
  }
  const auto num_found = static_cast<int64_t>(sequence.pages.size());
  if (!pool_.take(wanted - num_found, sequence.pages)) {
    let_go(sequence);
    return false;
  }
  sequence.num_published = num_found;
  sequence.num_in_cache = num_found * shape_.page_tokens;
  counters_.num_prefix_tokens += sequence.num_in_cache;
  return true;
}

// A page for the next id, if it needs one; others may have to give way. False if it had to itself.
bool Scheduler::grow(Sequence& sequence) {
  if (static_cast<int64_t>(sequence.pages.size()) * shape_.page_tokens > sequence.num_in_cache) return true;
  while (!pool_.take(1, sequence.pages)) {
    Sequence* last = *running_.rbegin();
    if (!parked_.empty() && last->order < (*parked_.rbegin())->order) last = *parked_.rbegin();
    give_up(*last);
    if (last == &sequence) return false;
  }
  return true;
}

void Scheduler::give_up(Sequence& sequence) {
  ++counters_.num_preemptions;
  counters_.num_recomputed_tokens += sequence.num_in_cache;
  let_go(sequence);
  if (running_.erase(&sequence) > 0) waiting_.insert(&sequence);
  if (parked_.erase(&sequence) > 0) parked_without_pages_.insert(&sequence);
}

void Scheduler::let_go(Sequence& sequence) {
  pool_.release(sequence.pages);
  sequence.pages.clear();
  sequence.num_in_cache = sequence.num_published = 0;
  sequence.prefix = 0;
}

void Scheduler::ran(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    Sequence& sequence = *step.sequence;
    sequence.num_in_cache += step.num_tokens;
    sequence.first_wanted = std::max(sequence.first_wanted, sequence.num_in_cache);
    if (shares()) publish(sequence);
  }
}

void Scheduler::publish(Sequence& sequence) {
  const int64_t size = shape_.page_tokens;
  for (int64_t page = sequence.num_published; (page + 1) * size <= sequence.num_in_cache; ++page) {
    const auto ids = std::span(sequence.ids).subspan(static_cast<size_t>(page * size), static_cast<size_t>(size));
    int32_t& number = sequence.pages[static_cast<size_t>(page)];
    const PagePool::Published published = pool_.publish(sequence.prefix, ids, number);
    number = published.page;
    sequence.prefix = published.prefix;
    sequence.num_published = page + 1;
  }
}

}  // namespace espalier::infer
