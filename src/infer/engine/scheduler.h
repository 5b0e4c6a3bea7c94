// Which ids of which sequences the next pass runs, and in which pages.
//
// A pass takes one id of every sequence that makes text, then pieces of prompts up to a budget, so that the time
// between two ids of a text stays short while long prompts arrive. A sequence is admitted, in order, when there are
// pages for all of its ids; nothing overtakes one that waits for pages. One whose beginning a running prompt is about
// to bring into the cache waits for that, and others go first meanwhile. Where a text grows and no page is left, the
// last running sequence in order gives up its pages and waits again: what it had is run anew later, with the same bits.
// As the first in order never gives way, it always ends, and so does each after it.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "infer/engine/batch_model.h"
#include "infer/engine/sequence.h"

namespace espalier::infer {

struct SchedulerConfig {
  int64_t max_sequences = 64;     // that hold pages at once
  int64_t max_step_tokens = 512;  // of a pass; a prompt that is run whole may exceed it
  // Of the prompts in a pass that continues texts as well: what bounds how long these wait for their next id.
  int64_t max_prompt_tokens_beside_texts = 512;
  int64_t max_logit_rows = 128;  // of a pass: what bounds the memory of scoring
};

struct SchedulerCounters {
  int64_t num_preemptions = 0;
  int64_t num_prefix_tokens = 0;  // that were found in the cache, of texts that came anew
  int64_t num_recomputed_tokens = 0;
};

// Sequences are the caller's; each is known from add() to remove().
class Scheduler {
 public:
  Scheduler(const BatchModelShape& shape, const SchedulerConfig& config);

  void add(Sequence& sequence);
  // Its pages are let go.
  void remove(Sequence& sequence);
  // A sequence that has no ids to run for now keeps its pages, as long as nobody else needs them to continue.
  void park(Sequence& sequence);
  // It has ids to run again.
  void unpark(Sequence& sequence);

  struct Step {
    Sequence* sequence;
    int64_t num_tokens;
    int64_t num_logits;
  };
  // Empty if there is nothing to run. After the pass, ran() must follow for all of them, or for none.
  std::vector<Step> plan();
  void ran(const std::vector<Step>& steps);

  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t num_parked() const { return static_cast<int64_t>(parked_.size()); }  // with pages
  const PagePool& pool() const { return pool_; }
  const SchedulerCounters& counters() const { return counters_; }

 private:
  struct InOrder {
    bool operator()(const Sequence* a, const Sequence* b) const { return a->order < b->order; }
  };
  using Sequences = std::set<Sequence*, InOrder>;
  struct Budget {
    int64_t tokens, rows;
    bool has_prompt = false;
  };

  void plan_text(Budget& budget, std::vector<Step>& steps);
  void plan_prompts(Budget& budget, std::vector<Step>& steps);
  void admit(Budget& budget, std::vector<Step>& steps);
  void plan_prompt(Sequence& sequence, Budget& budget, std::vector<Step>& steps);
  bool is_coming(const Sequence& sequence) const;
  bool get_pages(Sequence& sequence);
  bool grow(Sequence& sequence);
  void give_up(Sequence& sequence);
  void let_go(Sequence& sequence);
  void publish(Sequence& sequence);
  bool shares() const { return !shape_.whole_prompt && !shape_.has_encoder; }

  BatchModelShape shape_;
  SchedulerConfig config_;
  PagePool pool_;
  Sequences waiting_, running_, parked_;  // the last two hold pages
  Sequences parked_without_pages_;
  SchedulerCounters counters_;
};

}  // namespace espalier::infer
