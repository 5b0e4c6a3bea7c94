#include "infer/engine/active_request.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "infer/engine/beam_request.h"
#include "infer/engine/sampled_request.h"

namespace espalier::infer {

Sequence ActiveRequest::new_sequence(int64_t number) const {
  const auto size = static_cast<int64_t>(request_.prompt_ids.size());
  Sequence sequence;
  sequence.order = {.minus_priority = -request_.priority, .request = id_, .number = number};
  sequence.ids = request_.prompt_ids;
  sequence.first_wanted = size - 1;
  sequence.skip_last = request_.max_tokens == 0;
  const int64_t short_positions = context_.shape.short_positions;
  sequence.is_long = short_positions > 0 && size + request_.max_tokens > short_positions;
  if (context_.shape.whole_prompt) sequence.num_whole = request_.score_from.value_or(size);
  return sequence;
}

void ActiveRequest::send(Event event) {
  event.request = id_;
  is_done_ = is_done_ || event.is_last;
  if (callback_) callback_(event);
}

void ActiveRequest::end(FinishReason reason, std::string message) {
  leave();
  ended_ = reason;
  Event event;
  event.finish = Finish{.reason = reason, .message = std::move(message)};
  event.is_last = true;
  send(std::move(event));
}

std::optional<double> ActiveRequest::normalizer_of(const float* row, int64_t place) {
  const double normalizer = log_normalizer(row, context_.shape.vocab_size);
  if (std::isfinite(normalizer)) return normalizer;
  end(FinishReason::kFailed, concat("the model's logits after ", place + 1, " ids are not numbers"));
  return std::nullopt;
}

std::unique_ptr<ActiveRequest> make_active_request(uint64_t id, Request request, EventCallback callback,
                                                   RequestContext& context) {
  if (request.beam_width > 0)
    return std::make_unique<BeamRequest>(id, std::move(request), std::move(callback), context);
  return std::make_unique<SampledRequest>(id, std::move(request), std::move(callback), context);
}

}  // namespace espalier::infer
