#include "infer/engine/sampled_request.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "infer/engine/token_score.h"

namespace espalier::infer {
namespace {

// The first text of a stream has the draws of the stream's number alone.
int64_t random_row(const Request& request, int64_t choice) { return choice << 32 | request.random_stream; }

void append(std::vector<TokenScore>&& from, std::vector<TokenScore>& to) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

}  // namespace

SampledRequest::SampledRequest(uint64_t id, Request request, EventCallback callback, RequestContext& context)
    : ActiveRequest(id, std::move(request), std::move(callback), context),
      num_made_(request_.best_of > 0 ? request_.best_of : request_.n) {}

void SampledRequest::start() {
  add_choice();
  Sequence& first = choices_.front().sequence;
  if (request_.score_from) first.first_wanted = *request_.score_from - 1;
  context_.scheduler.add(first);
}

void SampledRequest::add_choice() {
  Choice& choice = choices_.emplace_back(Choice{.sequence = new_sequence(static_cast<int64_t>(choices_.size())),
                                                .history = TokenHistory(request_.prompt_ids),
                                                .text = {},
                                                .held = {}});
  if (context_.tokenizer != nullptr)
    choice.text.emplace(*context_.tokenizer, request_.prompt_ids, request_.stop_strings);
}

void SampledRequest::leave() {
  for (Choice& choice : choices_) context_.scheduler.remove(choice.sequence);
}

void SampledRequest::take_rows(Sequence& sequence, int64_t first, const float* rows, int64_t count) {
  Choice& choice = choices_[static_cast<size_t>(sequence.order.number)];
  const int64_t vocab_size = context_.shape.vocab_size;
  const auto num_prompt = static_cast<int64_t>(request_.prompt_ids.size());
  Event event;
  for (int64_t row = 0; row < count; ++row) {
    const float* logits = rows + row * vocab_size;
    const int64_t place = first + row;
    const std::optional<double> normalizer = normalizer_of(logits, place);
    if (!normalizer) return;
    if (place + 1 < num_prompt) {
      const int32_t next = sequence.ids[static_cast<size_t>(place + 1)];
      event.prompt_scores.push_back(score_token(logits, vocab_size, *normalizer, next, request_.num_alternatives));
    } else {
      take_token(choice, logits, *normalizer, event);
    }
  }
  if (sequence.skip_last && sequence.first_wanted == sequence.end()) event.finish = Finish{};
  if (event.finish) context_.scheduler.remove(sequence);
  // The other texts begin once the prompt is in the cache.
  while (choice.num_tokens > 0 && static_cast<int64_t>(choices_.size()) < num_made_) {
    add_choice();
    context_.scheduler.add(choices_.back().sequence);
  }
  pass_on(choice, std::move(event));
}

int32_t SampledRequest::draw(const Choice& choice, const float* row) {
  std::vector<int32_t> banned;
  if (choice.num_tokens < request_.min_tokens) banned = request_.stop_ids;
  for (const auto& [before, id] : request_.banned_pairs)
    if (choice.sequence.ids.back() == before) banned.push_back(id);
  const float* logits =
      adjusted_logits(row, context_.shape.vocab_size, request_.sampling, choice.history, banned, storage_);
  return draw_token(logits, context_.shape.vocab_size, request_.sampling,
                    random_row(request_, choice.sequence.order.number), choice.num_tokens);
}

void SampledRequest::take_token(Choice& choice, const float* row, double normalizer, Event& event) {
  const int32_t id = draw(choice, row);
  event.tokens.push_back(score_token(row, context_.shape.vocab_size, normalizer, id, request_.num_alternatives));
  choice.sum += event.tokens.back().log_probability;
  ++choice.num_tokens;
  ++context_.num_generated;
  choice.history.add(id);
  choice.sequence.ids.push_back(id);

  if (is_stopped(choice))
    event.finish = Finish{.reason = FinishReason::kStop, .stop_id = id, .stop_string = {}, .message = {}};
  else if (choice.num_tokens == request_.max_tokens)
    event.finish = Finish{};
  if (choice.text) add_text(choice, id, event);
  if (event.finish) event.finish->score = choice.sum / static_cast<double>(choice.num_tokens);
}

bool SampledRequest::is_stopped(const Choice& choice) const {
  const std::vector<int32_t>& ids = choice.sequence.ids;
  const auto& stops = request_.stop_ids;
  if (std::find(stops.begin(), stops.end(), ids.back()) != stops.end()) return true;
  return choice.num_tokens >= request_.min_tokens &&
         std::any_of(request_.stop_sequences.begin(), request_.stop_sequences.end(), [&](const auto& stop) {
           return stop.size() <= ids.size() && std::equal(stop.rbegin(), stop.rend(), ids.rbegin());
         });
}

// Text that is held back when the end comes may hold a stop string after all: one that also begins a longer one.
void SampledRequest::add_text(Choice& choice, int32_t id, Event& event) {
  const bool is_stop_id = event.finish && event.finish->stop_id;
  TextPiece piece;
  if (!is_stop_id) piece = choice.text->push(id, /*may_stop=*/choice.num_tokens >= request_.min_tokens);
  event.text = std::move(piece.text);
  if (!piece.stop && event.finish) {
    piece = choice.text->finish();
    event.text += piece.text;
  }
  if (!piece.stop || is_stop_id) return;
  event.finish = Finish{
      .reason = FinishReason::kStop, .stop_id = {}, .stop_string = request_.stop_strings[*piece.stop], .message = {}};
}

void SampledRequest::pass_on(Choice& choice, Event event) {
  const bool is_finished = event.finish.has_value();
  num_finished_ += is_finished ? 1 : 0;
  event.choice = choice.sequence.order.number;
  if (!picks_best()) {
    event.is_last = num_finished_ == num_made_;
    const bool says_something = is_finished || !event.tokens.empty() || !event.prompt_scores.empty();
    if (says_something) send(std::move(event));
    return;
  }
  append(std::move(event.prompt_scores), choice.held.prompt_scores);
  append(std::move(event.tokens), choice.held.tokens);
  choice.held.text += event.text;
  if (is_finished) choice.held.finish = event.finish;
  if (num_finished_ == num_made_) send_best();
}

// The prompt's scores are the same for all texts and came with the first that was made.
void SampledRequest::send_best() {
  std::vector<size_t> ranked(choices_.size());
  std::iota(ranked.begin(), ranked.end(), size_t{0});
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](size_t a, size_t b) { return choices_[a].held.finish->score > choices_[b].held.finish->score; });
  std::vector<TokenScore> prompt_scores = std::move(choices_.front().held.prompt_scores);
  for (int64_t place = 0; place < request_.n; ++place) {
    Event event = std::move(choices_[ranked[static_cast<size_t>(place)]].held);
    event.choice = place;
    event.prompt_scores = std::exchange(prompt_scores, {});  // the first's, then none
    event.is_last = place + 1 == request_.n;
    send(std::move(event));
  }
}

}  // namespace espalier::infer
