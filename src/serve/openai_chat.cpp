// POST /v1/chat/completions.
#include <utility>

#include "infer/engine/completion.h"
#include "serve/openai_fields.h"
#include "serve/routes.h"
#include "serve/token_names.h"
#include "text/chat_tokenizer.h"

namespace espalier::serve {
namespace {

struct ChatCall : OpenAiCall {
  std::string text;
  bool wants_logprobs = false;
  int64_t num_top = 0;
};

// Parts of a content: texts only, one after another.
std::string text_of_parts(const nlohmann::ordered_json& parts) {
  std::string text;
  for (const nlohmann::ordered_json& part : parts) {
    if (!part.is_object() || part.value("type", "") != "text" || !part.contains("text") || !part["text"].is_string())
      throw ApiError(400, "messages has a part of a content that is not a text; only texts can be read", "messages");
    text += part["text"].get<std::string>();
  }
  return text;
}

nlohmann::ordered_json read_messages(Fields& fields) {
  const nlohmann::json* const messages = fields.find("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty())
    throw ApiError(400, "messages is not a list of messages", "messages");
  nlohmann::ordered_json read = nlohmann::ordered_json::array();
  for (const nlohmann::json& message : *messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      throw ApiError(400, "messages has one without a role", "messages");
    nlohmann::ordered_json copy = {{"role", message["role"]}};
    for (const auto& [key, value] : message.items()) {
      if (key == "role" || value.is_null()) continue;
      if (key == "content" && value.is_array())
        copy[key] = text_of_parts(value);
      else if ((key == "content" || key == "name") && value.is_string())
        copy[key] = value;
      else if (key != "type" && key != "refusal" && !value.empty())
        throw ApiError(400, "messages has one with '" + key.substr(0, 64) + "', which is not supported", "messages");
    }
    if (!copy.contains("content")) copy["content"] = "";
    read.push_back(std::move(copy));
  }
  return read;
}

void refuse_what_has_effects(Fields& fields) {
  for (const char* const name : {"tools", "functions", "tool_choice", "function_call"})
    fields.refuse(name, "is not supported: no tools can be called");
  for (const char* const name : {"audio", "prediction", "reasoning_effort", "verbosity", "web_search_options"})
    fields.refuse(name, "is not supported");
  const nlohmann::json* const modalities = fields.find("modalities");
  if (modalities != nullptr && *modalities != nlohmann::json::array({"text"}))
    fields.problem("modalities", "is not [\"text\"]");
  fields.ignore({"parallel_tool_calls"});
}

ChatCall read_chat(Desk& desk, const std::string& body) {
  Fields fields(body);
  ChatCall call;
  static_cast<OpenAiCall&>(call) = read_openai_fields(desk, fields);
  const auto most = fields.integer("max_completion_tokens", 1, std::numeric_limits<int64_t>::max());
  if (most && call.request.max_tokens >= 0 && *most != call.request.max_tokens)
    fields.problem("max_completion_tokens", "is not max_tokens, which is given too");
  if (most) call.request.max_tokens = *most;
  if (call.request.max_tokens == 0) fields.problem("max_tokens", "is 0, so there is nothing to answer");
  call.wants_logprobs = fields.boolean("logprobs", false);
  call.num_top = fields.integer("top_logprobs", 0, 20).value_or(0);
  if (call.num_top > 0 && !call.wants_logprobs) fields.problem("top_logprobs", "needs logprobs: true");
  const bool adds_prompt = fields.boolean("add_generation_prompt", true);
  refuse_what_has_effects(fields);
  fields.find("messages");
  fields.finish();
  if (!desk.options.render_chat)
    throw ApiError(
        400,
        "this model's tokenizer has no chat template, so messages cannot become a text: give one with espalier "
        "serve --chat-template FILE, or use /v1/completions",
        "messages", "no_chat_template");
  call.text = desk.options.render_chat(read_messages(fields), adds_prompt);
  call.request.num_alternatives = std::min(call.num_top, desk.engine.limits().shape.vocab_size);
  call.id = desk.new_id("chatcmpl-");
  return call;
}

class ChatAnswer {
 public:
  ChatAnswer(Desk& desk, ChatCall call, std::shared_ptr<Answer> answer, int64_t num_prompt)
      : desk_(desk),
        call_(std::move(call)),
        answer_(std::move(answer)),
        names_(desk.tokenizer),
        has_begun_(static_cast<size_t>(call_.request.n)),
        num_prompt_(num_prompt) {
    if (call_.stream) answer_->begin_events();
  }

  void take(const infer::Event& event) {
    num_generated_ += static_cast<int64_t>(event.tokens.size());
    if (!call_.stream) return whole_.add(event);
    const auto index = static_cast<size_t>(event.choice);
    if (!std::exchange(has_begun_[index], uint8_t{1}))
      send(event.choice, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
    if (!event.text.empty() || (call_.wants_logprobs && !event.tokens.empty()))
      send(event.choice, {{"content", event.text}}, logprobs(event.tokens), nullptr);
    if (event.finish) send(event.choice, nlohmann::ordered_json::object(), nullptr, finish_word(*event.finish));
  }

  void end(const std::optional<ApiError>& error) {
    if (!call_.stream) return error ? answer_->reply(error->reply()) : reply_whole();
    if (error) answer_->send_event(error->event());
    if (call_.include_usage && !error) {
      nlohmann::ordered_json chunk = openai_frame(desk_, call_, "chat.completion.chunk");
      chunk["choices"] = nlohmann::ordered_json::array();
      chunk["usage"] = openai_usage(num_prompt_, num_generated_);
      answer_->send_event(dumped(chunk));
    }
    if (!error) answer_->send_event("[DONE]");
    answer_->end_events();
  }

 private:
  void send(int64_t index, const nlohmann::ordered_json& delta, const nlohmann::ordered_json& scores,
            const nlohmann::ordered_json& finish) {
    nlohmann::ordered_json chunk = openai_frame(desk_, call_, "chat.completion.chunk");
    chunk["choices"] = nlohmann::ordered_json::array();
    chunk["choices"].push_back({{"index", index}, {"delta", delta}, {"logprobs", scores}, {"finish_reason", finish}});
    if (call_.include_usage) chunk["usage"] = nullptr;
    answer_->send_event(dumped(chunk));
  }

  nlohmann::ordered_json logprobs(const std::vector<infer::TokenScore>& tokens) const {
    if (!call_.wants_logprobs) return nullptr;
    nlohmann::ordered_json content = nlohmann::ordered_json::array();
    for (const infer::TokenScore& score : tokens) content.push_back(chat_logprob(names_, score, call_.num_top));
    return {{"content", content}, {"refusal", nullptr}};
  }

  void reply_whole() {
    nlohmann::ordered_json body = openai_frame(desk_, call_, "chat.completion");
    body["choices"] = nlohmann::ordered_json::array();
    for (size_t index = 0; index < whole_.choices.size(); ++index) {
      const infer::CompletionChoice& made = whole_.choices[index];
      body["choices"].push_back({{"index", index},
                                 {"message", {{"role", "assistant"}, {"content", made.text}, {"refusal", nullptr}}},
                                 {"logprobs", logprobs(made.tokens)},
                                 {"finish_reason", finish_word(made.finish)}});
    }
    body["usage"] = openai_usage(num_prompt_, num_generated_);
    answer_->reply({.body = dumped(body)});
  }

  Desk& desk_;
  ChatCall call_;
  std::shared_ptr<Answer> answer_;
  TokenNames names_;
  infer::Completion whole_;
  std::vector<uint8_t> has_begun_;
  int64_t num_prompt_, num_generated_ = 0;
};

}  // namespace

void openai_chat(const Call& call) {
  ChatCall wanted = read_chat(call.desk, call.request.body);
  infer::Request request = wanted.request;
  std::vector<int32_t> prompt = text::encode_marked(call.desk.tokenizer, wanted.text);
  if (prompt.empty()) throw ApiError(400, "the chat template makes an empty text of messages", "messages");
  const auto num_prompt = static_cast<int64_t>(prompt.size());
  call.desk.give_prompt(request, std::move(prompt));
  const auto num_begun = static_cast<int64_t>(request.prompt_ids.size());
  if (request.max_tokens < 0) request.max_tokens = std::max<int64_t>(call.desk.max_context() + 1 - num_begun, 1);
  const auto made = std::make_shared<std::unique_ptr<ChatAnswer>>();
  const auto answer = [made, &desk = call.desk, wanted = std::make_shared<ChatCall>(std::move(wanted)),
                       to = call.answer, num_prompt]() -> ChatAnswer& {
    if (!*made) *made = std::make_unique<ChatAnswer>(desk, std::move(*wanted), to, num_prompt);
    return **made;
  };
  Generation::start(
      call.desk, call.answer, call.strand, {std::move(request)},
      [answer](size_t, const infer::Event& event) { answer().take(event); },
      [answer](const std::optional<ApiError>& error) { answer().end(error); });
}

}  // namespace espalier::serve
