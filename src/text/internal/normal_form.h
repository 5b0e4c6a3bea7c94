// Unicode's four normal forms, as tokenizers makes them.
#pragma once

#include <string>

namespace espalier::text::internal {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// `text` is valid UTF-8. Linear but for sorting runs of marks.
void normalize(NormalForm form, std::string& text);

}  // namespace espalier::text::internal
