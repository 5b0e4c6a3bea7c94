// Beam search as Megatron's: from the best 2 * width continuations of all beams, those that stop become finished texts
// if they are among the best `width`, and the others continue until there are `width` of them. It ends when no beam can
// come to beat the worst of `width` finished texts, or at the given length, where the beams are finished as they are.
//
// A score is a sum of log-probabilities / number of ids ^ length_penalty; the id that stops is counted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "infer/engine/request.h"

namespace espalier::infer {

struct BeamText {
  std::vector<TokenScore> tokens;
  double sum = 0;  // of their log-probabilities
  double score = 0;
  bool is_stopped = false;  // by the last of `tokens`
};

class BeamSearch {
 public:
  struct Config {
    int64_t width = 1;
    double length_penalty = 1;
    int64_t max_tokens = 1;
    std::vector<int32_t> stop_ids;
  };
  explicit BeamSearch(const Config& config);

  // What continues: an id after a beam of the step before. In the order of their scores.
  struct Next {
    size_t beam;
    int32_t id;
  };
  // `likeliest`: of each beam (at first there is one, of no ids) its num_wanted() most likely ids. Empty: it has ended.
  std::vector<Next> advance(std::span<const std::vector<Alternative>> likeliest);
  int64_t num_wanted() const { return 2 * config_.width; }

  // Once it has ended: at most `width` texts, the best first.
  std::vector<BeamText> texts() const;

 private:
  void finish(BeamText text);
  bool cannot_improve(double best_sum) const;
  double score(double sum, int64_t length) const;

  Config config_;
  int64_t length_ = 0;
  std::vector<BeamText> beams_, finished_;
};

}  // namespace espalier::infer
