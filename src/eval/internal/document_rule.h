// A value that a task file makes of a document: a field, a template, a constant, or a built-in function.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "eval/lm_eval_functions.h"
#include "text/jinja/template.h"

namespace espalier::eval::internal {

enum class RuleUse {
  kPlain,   // text
  kText,    // text, or the number of a choice
  kTarget,  // text, the number of a choice, or a list
  kChoice   // a list
};

class DocumentRule {
 public:
  // A UserError says what of `config` is not supported. `place`: file and line.
  DocumentRule(RuleUse use, const Json& config, const std::string& place, const std::filesystem::path& folder,
               bool has_choices);

  Json of(const Fields& document) const;

 private:
  Json of_text(const Fields& document) const;

  RuleUse use_;
  Json constant_;  // null: the template or the function
  bool has_choices_;
  std::string source_;
  std::shared_ptr<const text::Template> template_;
  DocumentFunction function_;
};

}  // namespace espalier::eval::internal
