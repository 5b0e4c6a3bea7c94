// POST /tokenize and /detokenize, GET /tokenizer_info: by these a client works with the server's own tokenizer.
#include <algorithm>

#include "serve/fields.h"
#include "serve/routes.h"
#include "text/chat_tokenizer.h"

namespace espalier::serve {
void tokenize(const Call& call) {
  Fields fields(call.request.body);
  const text::Tokenizer& tokenizer = call.desk.tokenizer;
  call.desk.check_model(fields.text("model"));
  const bool has_prompt = fields.find("prompt") != nullptr;
  const std::string prompt = fields.text("prompt");
  if (!has_prompt) fields.problem("prompt", "is missing");
  const bool wants_bos = fields.boolean("add_special_tokens", false);
  fields.finish();
  std::vector<int32_t> ids = text::encode_marked(tokenizer, prompt);
  if (const auto bos = tokenizer.named_ids().bos; wants_bos && bos) ids.insert(ids.begin(), *bos);
  reply_json(call, {{"count", ids.size()}, {"max_model_len", call.desk.max_context() + 1}, {"tokens", ids}});
}

void detokenize(const Call& call) {
  Fields fields(call.request.body);
  call.desk.check_model(fields.text("model"));
  if (fields.find("tokens") == nullptr) fields.problem("tokens", "is missing");
  const std::vector<int32_t> ids = fields.ids("tokens");
  const int64_t vocab_size = call.desk.tokenizer.vocab_size();
  if (std::any_of(ids.begin(), ids.end(), [&](int32_t id) { return id >= vocab_size; }))
    fields.problem("tokens", "has an id that is not one of the tokenizer's " + std::to_string(vocab_size));
  fields.finish();
  reply_json(call, {{"prompt", call.desk.tokenizer.decode(ids)}});
}

void tokenizer_info(const Call& call) {
  const text::Tokenizer& tokenizer = call.desk.tokenizer;
  const text::NamedIds named = tokenizer.named_ids();
  nlohmann::ordered_json info = {{"tokenizer", tokenizer.description()}, {"vocab_size", tokenizer.vocab_size()}};
  const auto tell = [&](const char* name, const std::optional<int32_t>& id) {
    if (id) info[name] = tokenizer.id_to_piece(*id);
  };
  tell("eos_token", named.eos ? named.eos : tokenizer.eod());
  tell("bos_token", named.bos);
  tell("pad_token", named.pad);
  if (const std::string chat = tokenizer.chat_template(); !chat.empty()) info["chat_template"] = chat;
  reply_json(call, info);
}

}  // namespace espalier::serve
