// What the engine is asked, and what it answers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "infer/sampling.h"

namespace espalier::infer {

struct Request {
  std::vector<int32_t> prompt_ids;        // at least one; with an encoder what the decoder's own text begins with
  std::vector<int32_t> encoder_ids;       // of models with an encoder: what it reads
  int64_t max_tokens = 16;                // 0: only scores of the prompt are wanted
  int64_t min_tokens = 0;                 // nothing stops the text before
  std::vector<int32_t> stop_ids;          // ends the text and is its last id; its text is not part of the answer
  std::vector<std::string> stop_strings;  // ends the text before it; the ids have it

  std::vector<std::vector<int32_t>> stop_sequences;  // as a stop id, for ids that are together at the end

  std::vector<std::pair<int32_t, int32_t>> banned_pairs;  // the second id is not drawn right after the first
  SamplingConfig sampling;
  uint32_t random_stream = 0;  // distinguishes requests of equal seeds, such as the prompts of one batch
  int64_t n = 1;               // texts wanted
  int64_t best_of = 0;         // texts made, of which the n of the best mean log-probability are given; 0: n
  int64_t beam_width = 0;      // > 0: beam search, whose n best texts are given
  double length_penalty = 1;   // of beam search: scores are divided by the number of ids to this power

  // Log-probabilities of prompt_ids from this place (at least 1) on. A model that sees prompts whole sees the ids
  // before it whole, and what follows as text.
  std::optional<int64_t> score_from;
  int64_t num_alternatives = 0;  // the most likely ids at each place, besides the chosen one

  bool stream = false;     // answers are passed on as they come: best_of and beams, chosen at the end, are refused
  int64_t priority = 0;    // larger ones first; equals in order of arrival
  std::string constraint;  // the field that asks for output of a given form: refused under this name
};

struct Alternative {
  int32_t id = 0;
  double log_probability = 0;
  bool operator==(const Alternative&) const = default;
};

// Log-probabilities are those of the model's own distribution: no temperature, penalty or filter. The same id at the
// same place has the same double in both members.
struct TokenScore {
  int32_t id = 0;
  double log_probability = 0;
  bool is_greedy = false;                 // no other id is more likely
  std::vector<Alternative> alternatives;  // most likely first, equals by id
  bool operator==(const TokenScore&) const = default;
};

enum class FinishReason { kStop, kLength, kCancelled, kFailed };

struct Finish {
  FinishReason reason = FinishReason::kLength;
  std::optional<int32_t> stop_id;  // of kStop: one of these two
  std::optional<std::string> stop_string;
  double score = 0;     // with best_of the mean log-probability, of beam search the score; texts come in its order
  std::string message;  // of kFailed
  bool operator==(const Finish&) const = default;
};

// A part of the answer to one request. The parts of a choice come in order.
struct Event {
  uint64_t request = 0;
  int64_t choice = 0;                     // 0 .. n-1
  std::vector<TokenScore> prompt_scores;  // of choice 0
  std::vector<TokenScore> tokens;
  std::string text;              // what is settled by now: whole characters, and no beginning of a stop string
  std::optional<Finish> finish;  // of the choice
  bool is_last = false;          // of the request; one of kCancelled or kFailed ends all its choices
};

// Called by the thread that drives the engine; it may submit and cancel.
using EventCallback = std::function<void(const Event&)>;

}  // namespace espalier::infer
