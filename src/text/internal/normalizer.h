// The normalizers of a tokenizer.json: what is done to a text before it is cut.
//
// NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace, ByteLevel, Sequence. Normal forms are those
// of tokenizers, whose tables are older than Unicode 16: newer characters are left alone, as there (unicode_table.h).
#pragma once

#include <memory>

#include "text/internal/json_file.h"
#include "text/internal/pieces.h"

namespace espalier::text::internal {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // Any thread. Leaves piece.id alone; the text may become empty.
  virtual void apply(Piece& piece) const = 0;
};

// Throws UserError for one that is not supported.
std::unique_ptr<Normalizer> make_normalizer(const JsonPart& part);

}  // namespace espalier::text::internal
