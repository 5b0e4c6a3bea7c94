// The text that a conversation becomes before a model continues it: what apply_chat_template of transformers gives
// (docs/chat-templates.md).
//
//   const ChatTemplate chat(tokenizer.chat_template(), chat_template_origin(tokenizer), tokenizer);
//   chat.render({{{"role", "user"}, {"content", "Hello"}}}, true);
#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/template.h"
#include "text/tokenizer.h"

namespace espalier::text {

class ChatTemplate {
 public:
  // A UserError (kBadData) names file, line and what is outside the subset. Of the tokenizer it takes the names of
  // special tokens.
  ChatTemplate(std::string_view text, const std::string& origin, const Tokenizer& tokenizer,
               const TemplateLimits& limits = {});

  // A UserError has what the template raises, or why it failed. `now`: what strftime_now returns.
  std::string render(const python::Json& messages, bool add_generation_prompt,
                     std::optional<std::time_t> now = {}) const;

 private:
  Template template_;
  python::Json tokens_;  // "bos_token" and its like
};

}  // namespace espalier::text
