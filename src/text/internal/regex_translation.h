// Oniguruma's expressions, as published tokenizers use them, rewritten for PCRE2.
//
// \p{..}, \s, \w, \d, \h and every bracketed class (nested ones and && included) become explicit sets of code points of
// Unicode 16; ^, $, \b, \v, {,n} get Oniguruma's meaning. What would mean something else, or is rare, is refused.
#pragma once

#include <string>
#include <string_view>

namespace espalier::text::internal {

// Throws UserError: "WHERE: ... is not supported".
std::string translate_regex(std::string_view expression, const std::string& where);

}  // namespace espalier::text::internal
