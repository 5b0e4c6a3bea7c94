// A name for each document that a pass sees, whose order is that of the documents.
//
// The pieces of a document that an earlier step split have its number; here each gets a name of its own, found again by
// its text. Pieces of one document with equal texts cannot be told apart afterwards: what is decided for all of them
// holds for each.
//
// Memory: one buffer; on disk 16 bytes for each piece of a split document.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "curate/dedup/record_sorter.h"
#include "curate/dedup/sorted_records.h"
#include "curate/document.h"

namespace espalier::curate {

class DocumentNodes {
 public:
  explicit DocumentNodes(const std::filesystem::path& folder);

  // Puts what add() needs in front of a digest, and takes it off again.
  static std::string start_digest(const Document& document);
  // In the order of the numbers.
  uint64_t add(int64_t number, std::string_view& digest);
  void finish();

  static int64_t number_of(uint64_t node) { return static_cast<int64_t>(node >> kPieceBits); }
  // One; several where pieces have equal texts. After finish().
  std::vector<uint64_t> find(const Document& document) const;

 private:
  static constexpr int kPieceBits = 20;
  struct Piece {
    uint64_t node, text_hash;
  };
  std::filesystem::path path_;
  std::optional<RecordWriter<Piece>> writer_;
  SortedRecords<Piece> pieces_;
  Piece last_{};
  int64_t last_number_ = -1;
};

}  // namespace espalier::curate
