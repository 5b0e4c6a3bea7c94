// Looks at a few places of a data set: the documents' beginnings and ends, spread over the range. For what has to be
// reported at once, however large the files are; `espalier data check` reads everything.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "data/splits.h"
#include "data/token_store.h"

namespace espalier::data {

// A piece of a sequence that was read.
struct TokenProbe {
  int64_t sequence = 0, offset = 0;
  std::span<const int64_t> ids;
};

// Calls `visit` with at most 64 ids of the beginning and of the end of at most 16 sequences of the range, the first
// and the last among them: what one reads of the file is some pages.
void probe_tokens(const TokenStore& store, const DocumentRange& range,
                  const std::function<void(const TokenProbe&)>& visit);

// The first id found that is below 0 or not below `vocab_size`: a sentence with file, place, expected and found.
std::optional<std::string> probe_ids(const TokenStore& store, const DocumentRange& range, int64_t vocab_size);

}  // namespace espalier::data
