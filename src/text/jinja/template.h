// Jinja templates as the harness's task files have them: text with {{ expressions }} over the fields of a document.
//
// Taken: fields, .name, [index], [from:to], literals and lists of expressions, + - * ~, comparisons, in, and, or, not,
// `a if b else c`, the methods and filters of template_values.h; {# comments #} and the - that removes blanks around a
// tag. All else, {% statements %} among it, is refused when the template is read, with the expression. As in the
// harness a name that the document does not have is an error, and the text's last line end stays.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/python_literal.h"

namespace espalier::text {

namespace jinja {
struct TemplateNode;
}

class Template {
 public:
  // A UserError (kBadData) that begins with `origin` ("arc_easy.yaml:12") where it is none of the subset.
  Template(std::string_view text, const std::string& origin);
  ~Template();
  Template(Template&&) noexcept;

  // A UserError names what of the document is missing or of another type.
  std::string render(const python::Json& document) const;

 private:
  struct Part;
  std::vector<Part> parts_;
  std::string origin_;
};

}  // namespace espalier::text
