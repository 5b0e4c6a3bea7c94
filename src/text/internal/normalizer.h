// The normalizers of a tokenizer.json: what is done to a text before it is cut.
//
// NFC, NFD, NFKC, NFKD, Nmt, Lowercase, StripAccents, Strip, Prepend, Replace, ByteLevel, BertNormalizer, Precompiled,
// Sequence. Normal forms are those of tokenizers, whose tables are older than Unicode 16: newer characters are left
// alone, as there (unicode_table.h).
#pragma once

#include <memory>

#include "text/internal/bert_words.h"
#include "text/internal/json_file.h"
#include "text/internal/pieces.h"

namespace espalier::text::internal {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Any thread. Leaves piece.id alone; the text may become empty.
  virtual void apply(Piece& piece) const = 0;
  // Of a whole BertNormalizer, which need not be applied where BertWords cuts the text: what it does. Else null.
  virtual const BertWords* bert_words() const { return nullptr; }
};

// Throws UserError for one that is not supported.
std::unique_ptr<Normalizer> make_normalizer(const JsonPart& part);

}  // namespace espalier::text::internal
