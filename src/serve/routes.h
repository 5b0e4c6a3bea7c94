// The routes that answer with JSON or events: one function each. They run in the pool of the desk, in the strand of
// their request, and throw an ApiError for what the client can fix.
#pragma once

#include "serve/generation.h"

namespace espalier::serve {

struct Call {
  Desk& desk;
  const HttpRequest& request;
  std::shared_ptr<Answer> answer;
  Generation::Strand strand;
};

void openai_completion(const Call& call);  // openai_completion.cpp
void openai_chat(const Call& call);        // openai_chat.cpp
void openai_models(const Call& call);      // models.cpp
void megatron_generate(const Call& call);  // megatron_api.cpp
void tokenize(const Call& call);           // tokenizer_routes.cpp
void detokenize(const Call& call);
void tokenizer_info(const Call& call);
void retrieve_passages(const Call& call);  // passages.cpp

void reply_json(const Call& call, const nlohmann::ordered_json& json);

// What `work` throws becomes the reply. `what` it is, for the log.
void answer_errors(const char* what, Answer& answer, const std::function<void()>& work);

}  // namespace espalier::serve
