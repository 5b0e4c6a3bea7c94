#include "text/jinja/template.h"

#include "base/error.h"
#include "text/jinja/internal/interpreter.h"
#include "text/jinja/internal/node.h"

namespace espalier::text {

Template::~Template() = default;
Template::Template(Template&&) noexcept = default;

Template::Template(std::string_view text, const std::string& origin, TemplateDialect dialect,
                   const TemplateLimits& limits)
    : origin_(origin), dialect_(dialect), limits_(limits) {
  const bool is_chat = dialect == TemplateDialect::kChat;
  try {
    statements_ = jinja::parse_template(text, {is_chat});
  } catch (const jinja::ReadFailure& failure) {
    throw UserError(concat(place(failure.line), ": ", failure.what), ExitCode::kBadData);
  }
}

std::string Template::render(const python::Json& document, std::optional<std::time_t> now) const {
  jinja::Interpreter interpreter(document, dialect_ == TemplateDialect::kTask, limits_,
                                 now ? *now : std::time(nullptr));
  try {
    return interpreter.run(statements_);
  } catch (const jinja::Raised& raised) {
    throw UserError(raised.text, ExitCode::kBadData);
  } catch (const UserError& error) {
    throw UserError(concat(error.what(), " (", place(interpreter.line()), ")"), ExitCode::kBadData);
  }
}

std::string Template::place(int line) const {
  return dialect_ == TemplateDialect::kTask ? origin_ : concat(origin_, ":", line);
}

}  // namespace espalier::text
