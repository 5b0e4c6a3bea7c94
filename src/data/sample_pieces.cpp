#include "data/sample_pieces.h"

#include "base/error.h"
#include "base/format.h"

namespace espalier::data {

int64_t document_of(const TokenStore& store, int64_t sequence) {
  int64_t document = 0, end = store.num_documents();
  while (end - document > 1) {
    const int64_t middle = document + (end - document) / 2;
    (store.first_sequence(middle) <= sequence ? document : end) = middle;
  }
  return document;
}

std::string describe(const SamplePiece& piece) {
  const TokenStore& store = *piece.store;
  const int64_t size = store.size(piece.sequence);
  const bool whole = piece.length == size;
  return concat("document ", document_of(store, piece.sequence),
                store.num_sequences() == store.num_documents() ? "" : concat(", sequence ", piece.sequence), " of ",
                store.prefix(), ": ", whole ? "all " : "", format_count(piece.length),
                piece.length == 1 ? " token" : " tokens",
                whole ? "" : concat(", ", piece.offset, " to ", piece.offset + piece.length - 1, " of ", size), "; at ",
                piece.at, " of the sample");
}

}  // namespace espalier::data
