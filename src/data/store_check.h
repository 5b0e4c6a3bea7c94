// Reads a data set whole and finds what is wrong with it: the work of `espalier data check`.
#pragma once

#include <cstdint>
#include <optional>

#include "base/progress.h"
#include "data/token_store.h"
#include "text/tokenizer.h"

namespace espalier::data {

struct IdRange {
  int64_t smallest = 0, largest = 0;  // 0 without tokens
};

// Reads every token with `threads` threads, in pieces of some MiB whatever the size of the file, advancing `progress`
// by their bytes. The first id below 0, or not below the vocabulary size, is a UserError (exit code 65) that says where
// it is. The index must have passed check_all().
IdRange check_ids(const TokenStore& store, std::optional<int64_t> vocab_size, int64_t threads, Progress& progress);

// Documents without a token: legal, and a sign of damaged document marks, for no tool writes them unasked.
int64_t count_empty_documents(const TokenStore& store);

struct DocumentEnds {
  int64_t num_documents = 0;  // with at least one token
  int64_t num_ended = 0;      // whose last id is `eod`
};

DocumentEnds count_document_ends(const TokenStore& store, int32_t eod);

struct RoundTrip {
  int64_t num_documents = 0, num_tokens = 0;  // tried
};

// Decodes documents spread evenly over the data set, encodes their text again and compares: at most `num_documents`
// of at most a million tokens each. An end-of-document id at the end is left out. The first difference is a UserError
// (exit code 65) with the document, the token, the expected and the found id.
RoundTrip check_round_trip(const TokenStore& store, const text::Tokenizer& tokenizer, int64_t num_documents);

}  // namespace espalier::data
