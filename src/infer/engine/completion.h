// Whole answers, for those who do not take them in parts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "infer/engine/engine.h"
#include "infer/engine/request.h"

namespace espalier::infer {

struct CompletionChoice {
  std::vector<TokenScore> tokens;
  std::string text;
  Finish finish;
  bool operator==(const CompletionChoice&) const = default;
};

struct Completion {
  std::vector<TokenScore> prompt_scores;
  std::vector<CompletionChoice> choices;
  bool is_whole = false;

  void add(const Event& event);
  bool operator==(const Completion&) const = default;
};

// The answers to all requests, in their order, which the engine is driven for. Refuses all of them before one runs if
// one is wrong; a UserError says which has failed.
std::vector<Completion> complete(Engine& engine, const std::vector<Request>& requests);

// How likely `continuation` is after `context` (at least one id each), without drawing anything. With an encoder the
// context is what the decoder's text begins with, and encoder_ids are still to be given.
Request score_request(std::span<const int32_t> context, std::span<const int32_t> continuation);

struct LogLikelihood {
  double sum = 0;         // of the scored ids' log-probabilities, in their order
  bool is_greedy = true;  // each of them is the most likely at its place
};
LogLikelihood log_likelihood(const Completion& scored);

}  // namespace espalier::infer
