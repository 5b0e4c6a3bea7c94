// The decoder of a tokenizer.json: from the pieces of some ids to their text.
//
// ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, WordPiece, BPEDecoder, CTC, Sequence.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/internal/json_file.h"

namespace espalier::text::internal {

class Decoder {
 public:
  virtual ~Decoder() = default;
  // Any thread. The text is what remains, joined.
  virtual void apply(std::vector<std::string>& pieces) const = 0;
};

std::unique_ptr<Decoder> make_decoder(const JsonPart& part);

}  // namespace espalier::text::internal
