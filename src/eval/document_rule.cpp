#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "eval/internal/document_rule.h"
#include "text/python_literal.h"

namespace espalier::eval::internal {
namespace {

using text::python::parse_literal;

constexpr std::string_view kFunctionTag = "!function ";

bool is_number_of_choice(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Json values_of(const Json& object) {
  Json values = Json::array();
  for (const Json& value : object) values.push_back(value);
  return values;
}

}  // namespace

DocumentRule::DocumentRule(RuleUse use, const Json& config, const std::string& place,
                           const std::filesystem::path& folder, bool has_choices)
    : use_(use), has_choices_(has_choices) {
  const auto refuse = [&](const std::string& what) { throw UserError(concat(place, ": ", what), ExitCode::kBadData); };
  if (!config.is_string()) {
    constant_ = use == RuleUse::kChoice && config.is_object() ? values_of(config) : config;
    const bool is_index = constant_.is_number_integer() && (use == RuleUse::kText || use == RuleUse::kTarget);
    const bool is_list = constant_.is_array() && (use == RuleUse::kTarget || use == RuleUse::kChoice);
    if (!is_index && !is_list) refuse(concat(config.dump().substr(0, 60), " is not supported here"));
    return;
  }
  source_ = config.get<std::string>();
  if (!source_.starts_with(kFunctionTag)) {
    template_ = std::make_shared<const text::Template>(source_, place);
    return;
  }
  function_ = find_function(folder, source_.substr(kFunctionTag.size()));
  if (!function_) refuse(concat("'", source_, "' is a Python function that has no equivalent here"));
}

Json DocumentRule::of_text(const Fields& document) const {
  const std::string text = template_->render(document.json());
  if (use_ == RuleUse::kPlain) return text;
  if (use_ == RuleUse::kChoice) return parse_literal(text);
  if (has_choices_ && is_number_of_choice(text)) return parse_literal(text);
  if (use_ == RuleUse::kTarget && text.size() >= 2 && text.starts_with('[') && text.ends_with(']')) {
    try {
      return parse_literal(text);
    } catch (const UserError&) {
      return text;
    }
  }
  return text;
}

Json DocumentRule::of(const Fields& document) const {
  if (!constant_.is_null()) return constant_;
  if (function_) return function_(document);
  if (document.json().contains(source_)) return document.json().at(source_);
  try {
    return of_text(document);
  } catch (const UserError& error) {
    document.refuse(error.what());
  }
}

}  // namespace espalier::eval::internal
