// Jinja templates, as task files of the harness and chat templates of tokenizers have them (docs/chat-templates.md).
//
// A subset of Jinja 3 is supported; all else is refused when the template is read, with its place. A template is
// bounded in nesting, steps and memory: it may come from anybody.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/python_literal.h"

namespace espalier::text {

namespace jinja {
struct Statement;
}

enum class TemplateDialect {
  kTask,  // the harness's: an absent name is an error, blanks stay; `origin` already has the line
  kChat,  // transformers': an absent name is empty, trim_blocks and lstrip_blocks; complaints name the line
};

struct TemplateLimits {
  // Both grow with the size of the document.
  int64_t steps = 1'000'000;         // expressions and statements
  size_t memory = size_t{64} << 20;  // bytes of all values that are made, and of the text
};

class Template {
 public:
  // A UserError (kBadData) that begins with `origin` ("arc_easy.yaml:12") where it is none of the subset.
  Template(std::string_view text, const std::string& origin, TemplateDialect dialect = TemplateDialect::kTask,
           const TemplateLimits& limits = {});
  ~Template();
  Template(Template&&) noexcept;

  // A UserError names what of the document is missing or of another type, and what the template itself raises.
  // `now` is the time that strftime_now returns.
  std::string render(const python::Json& document, std::optional<std::time_t> now = {}) const;

 private:
  std::string place(int line) const;

  std::vector<jinja::Statement> statements_;
  std::string origin_;
  TemplateDialect dialect_;
  TemplateLimits limits_;
};

}  // namespace espalier::text
