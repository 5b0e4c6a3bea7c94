// What completions and chats of OpenAI's interface have in common: the fields that say how to draw and when to stop,
// and the frame of an answer.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "serve/desk.h"
#include "serve/fields.h"

namespace espalier::serve {

struct OpenAiCall {
  infer::Request request;  // without a prompt
  bool stream = false, include_usage = false, wants_bos = false;
  std::string id, object;
};

// Reads what both know, and lets the fields be that change nothing. Without max_tokens: `max_tokens` of the call is -1.
OpenAiCall read_openai_fields(Desk& desk, Fields& fields);

// {"id", "object", "created", "model", "system_fingerprint"}
nlohmann::ordered_json openai_frame(const Desk& desk, const OpenAiCall& call, const std::string& object);

nlohmann::ordered_json openai_usage(int64_t num_prompt, int64_t num_generated);

// "stop" or "length".
const char* finish_word(const infer::Finish& finish);

std::string dumped(const nlohmann::ordered_json& json);

}  // namespace espalier::serve
