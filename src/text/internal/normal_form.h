// Unicode's four normal forms, as tokenizers makes them.
#pragma once

#include <string>

#include "text/unicode_table.h"

namespace espalier::text::internal {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` is valid UTF-8. Linear but for sorting runs of marks. `is_inert`: what the tables that are meant do not know.
void normalize(NormalForm form, std::string& text, bool (*is_inert)(char32_t) = is_inert_in_normalization);

}  // namespace espalier::text::internal
