#include "text/chat_template.h"

#include "base/error.h"
#include "text/utf8.h"

namespace espalier::text {
namespace {

Template template_of(std::string_view text, const std::string& origin, const TemplateLimits& limits) {
  constexpr size_t kMostBytes = size_t{1} << 20;
  if (text.size() > kMostBytes)
    throw UserError(concat(origin, ": a chat template has at most ", kMostBytes, " bytes"), ExitCode::kBadData);
  if (const size_t valid = valid_utf8_prefix(text); valid != text.size())
    throw UserError(concat(origin, ": expected UTF-8, and at byte ", valid, " there is something else"),
                    ExitCode::kBadData);
  return {text, origin, TemplateDialect::kChat, limits};
}

python::Json tokens_of(const Tokenizer& tokenizer) {
  python::Json tokens = python::Json::object();
  const NamedIds named = tokenizer.named_ids();
  const auto add = [&](const char* name, const std::optional<int32_t>& id) {
    if (id) tokens[name] = tokenizer.id_to_piece(*id);
  };
  add("bos_token", named.bos);
  add("eos_token", named.eos);
  add("pad_token", named.pad);
  add("sep_token", named.sep);
  add("cls_token", named.cls);
  add("mask_token", named.mask);
  return tokens;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view text, const std::string& origin, const Tokenizer& tokenizer,
                           const TemplateLimits& limits)
    : template_(template_of(text, origin, limits)), tokens_(tokens_of(tokenizer)) {}

std::string ChatTemplate::render(const python::Json& messages, bool add_generation_prompt,
                                 std::optional<std::time_t> now) const {
  python::Json document = tokens_;
  python::Json& given = document["messages"] = python::Json::array();
  for (const python::Json& message : messages) {
    given.push_back(python::Json::object());
    for (const auto& [name, value] : message.items())
      if (!value.is_null()) given.back()[name] = value;  // transformers 5 drops these
  }
  document["tools"] = nullptr;
  document["documents"] = nullptr;
  document["add_generation_prompt"] = add_generation_prompt;
  return template_.render(document, now);
}

}  // namespace espalier::text
