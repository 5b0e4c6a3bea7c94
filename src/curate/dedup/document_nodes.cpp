#include "curate/dedup/document_nodes.h"

#include <cstring>

#include "base/hash.h"

namespace espalier::curate {

DocumentNodes::DocumentNodes(const std::filesystem::path& folder) : path_(folder / "pieces"), writer_(path_) {}

std::string DocumentNodes::start_digest(const Document& document) {
  const uint64_t hash = hash64(document.text);
  return {reinterpret_cast<const char*>(&hash), sizeof hash};
}

uint64_t DocumentNodes::add(int64_t number, std::string_view& digest) {
  Piece piece{static_cast<uint64_t>(number) << kPieceBits, 0};
  std::memcpy(&piece.text_hash, digest.data(), sizeof piece.text_hash);
  digest.remove_prefix(sizeof piece.text_hash);
  ESPALIER_CHECK(number >= last_number_, number);
  if (number == last_number_) {
    if (last_.node == static_cast<uint64_t>(number) << kPieceBits) writer_->add(last_);
    piece.node = last_.node + 1;
    if (piece.node >> kPieceBits != static_cast<uint64_t>(number))
      throw UserError(concat("document ", number, " was split into more than ", 1 << kPieceBits, " pieces"),
                      ExitCode::kBadData);
    writer_->add(piece);
  }
  last_number_ = number;
  last_ = piece;
  return piece.node;
}

void DocumentNodes::finish() {
  writer_->close();
  writer_.reset();
  pieces_ = SortedRecords<Piece>(path_);
}

std::vector<uint64_t> DocumentNodes::find(const Document& document) const {
  const uint64_t first = static_cast<uint64_t>(document.number) << kPieceBits;
  const std::span<const Piece> pieces = pieces_.between(first, first + (uint64_t{1} << kPieceBits));
  if (pieces.empty()) return {first};
  std::vector<uint64_t> nodes;
  const uint64_t hash = hash64(document.text);
  for (const Piece& piece : pieces)
    if (piece.text_hash == hash) nodes.push_back(piece.node);
  return nodes;
}

}  // namespace espalier::curate
