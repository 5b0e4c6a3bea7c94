// Which sentences make each block of the inverse cloze task, and in which order the blocks are read:
// Megatron-DeepSpeed's map, to the bit.
//
// A block is a run of whole sentences of one document, joined until with the document's title it fills a sample; what
// is left of a document makes its last block. Nothing is random but the shuffle of all epochs at the end. A block may
// be longer than a sample: whoever reads it cuts it.
//
// Left out, as upstream does it: documents of fewer sentences than a block must have, and those with a sentence of more
// than 512 tokens. Upstream counts the documents of a set from its first one and so looks up wrong titles for all sets
// but the one at the file's beginning; here a document has the number, and the title, that it has in the file.
#pragma once

#include <cstdint>
#include <string>

#include "data/document_sizes.h"
#include "data/index_array.h"
#include "data/sentence_map.h"
#include "data/splits.h"

namespace espalier::data {

struct BlockMapRequest {
  DocumentRange documents;
  int64_t max_length = 0;   // tokens of a sample with its title, without its special ones
  int64_t num_samples = 0;  // at least this many; 0 gives one epoch
  uint32_t seed = 0;
  int64_t min_sentences = 2;  // of a block; 1 takes documents of one sentence too
  std::string name;           // for people only: "train of wiki"
};

class BlockMap {
 public:
  // Sentences first to end - 1 of the file, which are of `document`; `block` counts the blocks of an epoch.
  struct Row {
    int64_t first = 0, end = 0, document = 0, block = 0;
    bool operator==(const Row&) const = default;
  };

  // `titles`: the tokens of each document's title, one for each document of the file. Throws a UserError (kBadData)
  // with the numbers when no document can be used, or a title leaves no room for its block.
  static BlockMap build(const Sentences& sentences, const DocumentSizes& titles, const BlockMapRequest& request);

  int64_t size() const { return rows_.rows(); }
  Row operator[](int64_t sample) const {
    return {rows_[4 * sample], rows_[4 * sample + 1], rows_[4 * sample + 2], rows_[4 * sample + 3]};
  }
  const DocumentSurvey& survey() const { return survey_; }

  // Upstream's array: a row (first, end, document, block) for each sample.
  const IndexArray& rows() const { return rows_; }

 private:
  DocumentSurvey survey_;
  IndexArray rows_;
};

}  // namespace espalier::data
