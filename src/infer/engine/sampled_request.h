// Texts drawn id by id, and prompts scored.
#pragma once

#include <deque>
#include <optional>

#include "infer/engine/active_request.h"
#include "infer/engine/text_stream.h"

namespace espalier::infer {

class SampledRequest final : public ActiveRequest {
 public:
  SampledRequest(uint64_t id, Request request, EventCallback callback, RequestContext& context);

  void start() override;
  void take_rows(Sequence& sequence, int64_t first, const float* rows, int64_t count) override;

 private:
  struct Choice {
    Sequence sequence;
    TokenHistory history;
    std::optional<TextStream> text;
    int64_t num_tokens = 0;
    double sum = 0;  // of log-probabilities
    Event held;      // with best_of: all of the answer so far
  };

  void leave() override;
  void add_choice();
  void take_token(Choice& choice, const float* row, double normalizer, Event& event);
  int32_t draw(const Choice& choice, const float* row);
  void add_text(Choice& choice, int32_t id, Event& event);
  bool is_stopped(const Choice& choice) const;
  void pass_on(Choice& choice, Event event);
  void send_best();
  bool picks_best() const { return num_made_ > request_.n; }

  int64_t num_made_;  // texts to be made
  int64_t num_finished_ = 0;
  std::deque<Choice> choices_;  // stay where they are: the scheduler knows their sequences
  std::vector<float> storage_;
};

}  // namespace espalier::infer
