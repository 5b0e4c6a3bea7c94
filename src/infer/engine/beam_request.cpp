#include "infer/engine/beam_request.h"

#include <algorithm>
#include <utility>

#include "infer/engine/text_stream.h"
#include "infer/engine/token_score.h"

namespace espalier::infer {

BeamRequest::BeamRequest(uint64_t id, Request request, EventCallback callback, RequestContext& context)
    : ActiveRequest(id, std::move(request), std::move(callback), context),
      search_({.width = request_.beam_width,
               .length_penalty = request_.length_penalty,
               .max_tokens = request_.max_tokens,
               .stop_ids = request_.stop_ids}) {}

void BeamRequest::start() {
  beams_.push_back({std::make_unique<Sequence>(new_sequence(0)), {}});
  context_.scheduler.add(*beams_[0].sequence);
}

void BeamRequest::leave() {
  for (const Beam& beam : beams_) context_.scheduler.remove(*beam.sequence);
}

void BeamRequest::take_rows(Sequence& sequence, int64_t first, const float* rows, int64_t /*count*/) {
  const std::optional<double> normalizer = normalizer_of(rows, first);
  if (!normalizer) return;
  const auto beam =
      std::find_if(beams_.begin(), beams_.end(), [&](const Beam& b) { return b.sequence.get() == &sequence; });
  beam->likeliest = likeliest(rows, context_.shape.vocab_size, *normalizer, search_.num_wanted());
  context_.scheduler.park(sequence);
  if (std::all_of(beams_.begin(), beams_.end(), [](const Beam& b) { return !b.likeliest.empty(); })) advance();
}

// The first way in which a beam continues keeps its sequence.
void BeamRequest::advance() {
  std::vector<std::vector<Alternative>> likeliest;
  for (Beam& beam : beams_) likeliest.push_back(std::move(beam.likeliest));
  const std::vector<BeamSearch::Next> next = search_.advance(likeliest);
  context_.num_generated += static_cast<int64_t>(next.size());
  if (next.empty()) {
    leave();
    send_texts();
    return;
  }
  std::vector<Beam> beams(next.size());
  for (size_t place = next.size(); place-- > 0;) {
    const auto& [parent, id] = next[place];
    const bool is_first = std::none_of(next.begin(), next.begin() + static_cast<std::ptrdiff_t>(place),
                                       [beam = parent](const auto& earlier) { return earlier.beam == beam; });
    if (!is_first) {
      beams[place] = forked(*beams_[parent].sequence, id);
      continue;
    }
    beams[place].sequence = std::move(beams_[parent].sequence);
    beams[place].sequence->ids.push_back(id);
    context_.scheduler.unpark(*beams[place].sequence);
  }
  for (const Beam& beam : beams_)
    if (beam.sequence) context_.scheduler.remove(*beam.sequence);
  beams_ = std::move(beams);
}

BeamRequest::Beam BeamRequest::forked(const Sequence& parent, int32_t id) {
  Beam beam{std::make_unique<Sequence>(new_sequence(num_sequences_++)), {}};
  beam.sequence->ids = parent.ids;
  beam.sequence->ids.push_back(id);
  beam.sequence->first_wanted = static_cast<int64_t>(parent.ids.size());
  context_.scheduler.add(*beam.sequence);
  return beam;
}

void BeamRequest::send_texts() {
  const std::vector<BeamText> texts = search_.texts();
  const size_t count = std::min(texts.size(), static_cast<size_t>(request_.n));
  for (size_t place = 0; place < count; ++place) {
    const BeamText& text = texts[place];
    Event event;
    event.choice = static_cast<int64_t>(place);
    event.tokens = text.tokens;
    event.finish = Finish{.score = text.score, .message = {}};
    if (text.is_stopped) {
      event.finish->reason = FinishReason::kStop;
      event.finish->stop_id = text.tokens.back().id;
    }
    if (context_.tokenizer != nullptr) {
      TextStream stream(*context_.tokenizer, request_.prompt_ids, {});
      for (size_t token = 0; token < text.tokens.size() - (text.is_stopped ? 1 : 0); ++token)
        event.text += stream.push(text.tokens[token].id).text;
      event.text += stream.finish().text;
    }
    event.is_last = place + 1 == count;
    send(std::move(event));
  }
}

}  // namespace espalier::infer
