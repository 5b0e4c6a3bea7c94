// Texts in the form on which language models for filtering were trained.
#pragma once

#include <string>
#include <string_view>

namespace espalier::curate {

enum class ModelText {
  kPlain,       // as it is
  kBigScience,  // control characters are removed (line ends too), blanks of all kinds become one kind, digits 0,
                // punctuation ASCII
  kCcnet,       // lower case, no accents, digits 0, punctuation ASCII; then control characters go (line ends too)
};

// What BigScience's and CCNet's normalization() make of it, ends stripped; CCNet's table of 34 punctuation marks serves
// both. Valid UTF-8.
std::string model_text(ModelText setting, std::string_view text);
// BigScience's in lower case, from which the words of languages without blanks are cut.
std::string bigscience_words_text(std::string_view text);

}  // namespace espalier::curate
