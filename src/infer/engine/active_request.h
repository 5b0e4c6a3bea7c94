// A request while it is worked on: which sequences it has, and what becomes of the logits after their ids.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "infer/engine/batch_model.h"
#include "infer/engine/request.h"
#include "infer/engine/scheduler.h"
#include "text/tokenizer.h"

namespace espalier::infer {

// What the requests of an engine share. The engine owns it.
struct RequestContext {
  Scheduler& scheduler;
  BatchModelShape shape;
  const text::Tokenizer* tokenizer;  // null: answers have no text
  int64_t num_generated = 0;         // ids drawn by all requests
};

class ActiveRequest {
 public:
  ActiveRequest(uint64_t id, Request request, EventCallback callback, RequestContext& context)
      : request_(std::move(request)), context_(context), id_(id), callback_(std::move(callback)) {}
  virtual ~ActiveRequest() = default;
  ActiveRequest(const ActiveRequest&) = delete;
  ActiveRequest& operator=(const ActiveRequest&) = delete;

  // Gives the scheduler its first sequence.
  virtual void start() = 0;
  // `rows`: logits after `count` ids of the sequence from place `first` on.
  virtual void take_rows(Sequence& sequence, int64_t first, const float* rows, int64_t count) = 0;
  // Ends it before its time, with an event of the reason.
  void end(FinishReason reason, std::string message = "");

  bool is_done() const { return is_done_; }
  // Why, if it was before its time.
  std::optional<FinishReason> ended() const { return ended_; }
  uint64_t id() const { return id_; }
  const Request& request() const { return request_; }
  int32_t encoded = -1;  // of models with an encoder, once it has run

 protected:
  // A sequence of the prompt.
  Sequence new_sequence(int64_t number) const;
  void send(Event event);
  // All sequences leave the scheduler.
  virtual void leave() = 0;
  // The log_normalizer of a row; nothing, after the request was ended, where a logit is not a number.
  std::optional<double> normalizer_of(const float* row, int64_t place);

  Request request_;
  RequestContext& context_;

 private:
  uint64_t id_;
  EventCallback callback_;
  bool is_done_ = false;
  std::optional<FinishReason> ended_;
};

// The kind that `request` asks for.
std::unique_ptr<ActiveRequest> make_active_request(uint64_t id, Request request, EventCallback callback,
                                                   RequestContext& context);

}  // namespace espalier::infer
