// What a piece of a sample is, for people.
#pragma once

#include <cstdint>
#include <string>

#include "data/sample_source.h"
#include "data/token_store.h"

namespace espalier::data {

// The number of the document that holds a sequence.
int64_t document_of(const TokenStore& store, int64_t sequence);

// "document 17 of data/wiki: 34 tokens, 556 to 589 of 1745; at 0 of the sample"
std::string describe(const SamplePiece& piece);

}  // namespace espalier::data
