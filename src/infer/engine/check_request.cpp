#include "infer/engine/check_request.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "base/error.h"
#include "text/utf8.h"

namespace espalier::infer {
namespace {

void check_ids(const std::vector<int32_t>& ids, const char* name, int64_t vocab_size, Problems& problems) {
  const auto wrong = std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id < 0 || id >= vocab_size; });
  if (wrong != ids.end()) problems.add(name, " has the id ", *wrong, ", but the model's ids are 0 to ", vocab_size - 1);
}

void check_prompt(const Request& request, const BatchModelShape& shape, Problems& problems) {
  if (request.prompt_ids.empty()) problems.add("the prompt has no tokens; it needs at least one to start from");
  check_ids(request.prompt_ids, "the prompt", shape.vocab_size, problems);
  check_ids(request.encoder_ids, "what the encoder reads", shape.vocab_size, problems);
  if (shape.has_encoder && request.encoder_ids.empty())
    problems.add("the model has an encoder, and there are no tokens for it to read");
  if (!shape.has_encoder && !request.encoder_ids.empty())
    problems.add("the model has no encoder to read ", request.encoder_ids.size(), " tokens");
  const auto size = static_cast<int64_t>(request.prompt_ids.size());
  if (!request.score_from) return;
  const int64_t last = request.max_tokens == 0 ? size - 1 : size;
  if (*request.score_from < 1 || *request.score_from > last)
    problems.add("score_from ", *request.score_from, " is not within 1 to ", last, ", of a prompt of ", size,
                 " tokens: the first has no log-probability");
}

// The last token is not run: nothing comes after it.
void check_length(const Request& request, const BatchModelShape& shape, Problems& problems) {
  if (request.max_tokens < 0) problems.add("max_tokens ", request.max_tokens, " is less than 0");
  if (request.max_tokens == 0 && !request.score_from)
    problems.add("max_tokens 0 asks for nothing: give 1 or more, or ask for scores of the prompt");
  if (request.min_tokens < 0 || request.min_tokens > std::max<int64_t>(request.max_tokens, 0))
    problems.add("min_tokens ", request.min_tokens, " is not within 0 to max_tokens (", request.max_tokens, ")");
  const auto size = static_cast<int64_t>(request.prompt_ids.size());
  const auto read = static_cast<int64_t>(request.encoder_ids.size());
  if (shape.encoder_positions > 0 && read > shape.encoder_positions)
    problems.add("what the encoder reads has ", read, " tokens, but the model has learned ", shape.encoder_positions,
                 " positions");
  if (request.max_tokens < 0) return;
  constexpr int64_t kMost = int64_t{1} << 40;  // so that sums do not overflow
  const int64_t run = size + std::min(request.max_tokens, kMost) - 1;
  if (shape.max_positions > 0 && run > shape.max_positions)
    problems.add("the prompt has ", size, " tokens, and with max_tokens ", request.max_tokens, " the last is run at ",
                 run, ", but the model has learned ", shape.max_positions, " positions. ",
                 size > shape.max_positions ? concat("Shorten the prompt to at most ", shape.max_positions, " tokens.")
                                            : concat("Ask for at most ", shape.max_positions - size + 1, " tokens."));
  const int64_t room = shape.num_pages * shape.page_tokens;
  if (run > room)
    problems.add("the prompt of ", size, " tokens with max_tokens ", request.max_tokens, " needs room for ", run,
                 " tokens, and the key-value cache has ", room, ". Ask for less, or give the cache more memory.");
}

void check_range(const char* name, double value, double least, double most, Problems& problems) {
  if (!(value >= least && value <= most)) problems.add(name, " ", value, " is not within ", least, " to ", most);
}

void check_finite(const char* name, double value, Problems& problems) {
  if (!std::isfinite(value)) problems.add(name, " ", value, " is not a finite number");
}

void check_sampling(const SamplingConfig& sampling, int64_t vocab_size, Problems& problems) {
  if (!(sampling.temperature >= 0) || !std::isfinite(sampling.temperature))
    problems.add("temperature ", sampling.temperature, " is not 0 (greedy) or a positive number");
  if (sampling.top_k < 0) problems.add("top_k ", sampling.top_k, " is less than 0 (0: all tokens)");
  check_range("top_p", sampling.top_p, 0, 1, problems);
  check_range("top_p_decay", sampling.top_p_decay, 0, 1, problems);
  check_range("top_p_bound", sampling.top_p_bound, 0, sampling.top_p, problems);
  if (sampling.top_p_decay > 0 && sampling.top_p <= 0) problems.add("top_p_decay needs top_p, which it makes smaller");
  check_range("min_p", sampling.min_p, 0, 1, problems);
  if (!(sampling.repetition_penalty > 0) || !std::isfinite(sampling.repetition_penalty))
    problems.add("repetition_penalty ", sampling.repetition_penalty, " is not a positive number (1: none)");
  check_finite("frequency_penalty", sampling.frequency_penalty, problems);
  check_finite("presence_penalty", sampling.presence_penalty, problems);
  for (const auto& [id, bias] : sampling.logit_bias) {
    check_ids({id}, "logit_bias", vocab_size, problems);
    check_finite("logit_bias", bias, problems);
  }
}

// Something must be left to be drawn.
void check_bans(const Request& request, int64_t vocab_size, Problems& problems) {
  std::set<int32_t> stops;
  if (request.min_tokens > 0) stops.insert(request.stop_ids.begin(), request.stop_ids.end());
  if (static_cast<int64_t>(stops.size()) >= vocab_size)
    problems.add("min_tokens ", request.min_tokens, " cannot be reached: each of the ", vocab_size,
                 " ids stops the text");
  std::map<int32_t, std::set<int32_t>> banned;
  for (const auto& [before, id] : request.banned_pairs) {
    check_ids({before, id}, "banned_pairs", vocab_size, problems);
    banned.try_emplace(before, stops).first->second.insert(id);
  }
  for (const auto& [before, ids] : banned)
    if (static_cast<int64_t>(ids.size()) >= vocab_size)
      problems.add("banned_pairs, with the ids that stop too early, leave nothing to follow the id ", before);
}

void check_stops(const Request& request, const RequestLimits& limits, Problems& problems) {
  check_ids(request.stop_ids, "stop_ids", limits.shape.vocab_size, problems);
  for (const std::vector<int32_t>& stop : request.stop_sequences) {
    if (stop.empty()) problems.add("one of stop_sequences has no ids");
    check_ids(stop, "stop_sequences", limits.shape.vocab_size, problems);
  }
  if (!request.stop_strings.empty() && !limits.has_text)
    problems.add("stop strings need a tokenizer, and there is none; give stop ids");
  for (const std::string& stop : request.stop_strings) {
    if (stop.empty()) problems.add("a stop string is empty");
    if (text::valid_utf8_prefix(stop) != stop.size()) problems.add("a stop string is not valid UTF-8");
  }
}

bool changes_distribution(const SamplingConfig& sampling) {
  return (sampling.temperature != 0 && sampling.temperature != 1) || sampling.top_k > 1 || sampling.top_p != 0 ||
         sampling.min_p != 0 || sampling.repetition_penalty != 1 || sampling.frequency_penalty != 0 ||
         sampling.presence_penalty != 0 || !sampling.logit_bias.empty();
}

void check_beams(const Request& request, Problems& problems) {
  const auto refuse = [&](bool is_given, const char* what) {
    if (is_given) problems.add("beam search cannot be combined with ", what);
  };
  if (request.n > request.beam_width)
    problems.add("n ", request.n, " is more than beam_width ", request.beam_width, ": a search has no more texts");
  refuse(request.best_of > 0, "best_of: it gives the best texts of all beams");
  refuse(request.stream, "streaming: its texts are known only at the end");
  refuse(changes_distribution(request.sampling), "temperature, filters, penalties or bias: nothing is drawn");
  refuse(!request.stop_strings.empty() || !request.stop_sequences.empty(), "stop strings and sequences; give stop ids");
  refuse(!request.banned_pairs.empty(), "banned pairs");
  refuse(request.min_tokens > 0, "min_tokens");
  refuse(request.score_from.has_value(), "scores of the prompt");
  refuse(request.num_alternatives > 0, "alternatives at each place");
  if (request.max_tokens == 0) problems.add("beam search needs max_tokens of at least 1");
  check_finite("length_penalty", request.length_penalty, problems);
}

void check_choices(const Request& request, const RequestLimits& limits, Problems& problems) {
  const auto check_count = [&](const char* name, int64_t count, int64_t least, int64_t most) {
    if (count < least || count > most) problems.add(name, " ", count, " is not within ", least, " to ", most);
  };
  check_count("n", request.n, 1, limits.max_choices);
  check_count("best_of", request.best_of, 0, limits.max_choices);
  check_count("beam_width", request.beam_width, 0, limits.max_choices);
  constexpr int64_t kMostUrgent = 1'000'000'000;
  check_count("priority", request.priority, -kMostUrgent, kMostUrgent);
  check_count("num_alternatives", request.num_alternatives, 0,
              std::min(limits.max_alternatives, limits.shape.vocab_size));
  if (request.best_of > 0 && request.n > request.best_of)
    problems.add("n ", request.n, " is more than best_of ", request.best_of, ", from which the n are chosen");
  if (request.stream && request.best_of > request.n)
    problems.add("best_of ", request.best_of, " cannot be streamed: which ", request.n, " of the texts are best is ",
                 "known only at the end");
  if (request.max_tokens == 0 && std::max(request.n, request.best_of) > 1)
    problems.add("max_tokens 0 makes no text, so n and best_of are 1");
}

void check_constraint(const Request& request, Problems& problems) {
  if (!request.constraint.empty())
    problems.add(request.constraint, ": constrained output (a grammar, a schema, choices) is not supported");
}

}  // namespace

void check_request(const Request& request, const RequestLimits& limits) {
  Problems problems;
  check_prompt(request, limits.shape, problems);
  check_length(request, limits.shape, problems);
  check_sampling(request.sampling, limits.shape.vocab_size, problems);
  check_stops(request, limits, problems);
  check_bans(request, limits.shape.vocab_size, problems);
  check_choices(request, limits, problems);
  if (request.beam_width > 0) check_beams(request, problems);
  check_constraint(request, problems);
  problems.raise();
}

}  // namespace espalier::infer
