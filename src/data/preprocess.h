// JSONL text to token files: `<prefix>_<key>_document.{bin,idx}` for each key.
//
// One thread reads and writes, `workers` threads parse and tokenize blocks of records. Results are written in the
// order of the input, so the files do not depend on the number of workers. Memory: about 4 MiB per worker, a few times
// the longest record (at most kMaxRecordBytes), and what the tokenizer needs, however large the corpus.
//
// Per record and key, as Megatron's preprocess_data.py: a text that gives no tokens gives no document, for that key
// only; a record that its code would fail on is malformed and gives nothing for any key. Raw bytes that are not UTF-8
// become U+FFFD and are counted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/document_reader.h"
#include "text/tokenizer.h"

namespace espalier::data {

struct PreprocessOptions {
  std::vector<std::string> inputs;  // files; "-" is standard input
  std::string output_prefix;
  std::vector<std::string> json_keys = {"text"};
  bool prepend_space = false;  // before each text
  bool append_eod = false;     // after the last sequence of each document
  bool append_bos = false;     // instead of the EOD
  // Each sentence becomes a sequence of its document (text/sentence_splitter.h), for BERT and T5; keep_newlines: with
  // the blanks and line ends after it.
  bool split_sentences = false, keep_newlines = false;
  int64_t workers = 1;
  Shard shard;
  bool stop_at_malformed = false;        // else they are left out, counted and reported
  bool replace_lone_surrogates = false;  // else a record that holds one is malformed
  // Of a command line that names the tokenizer: kept in the metadata, so that it can be found again.
  std::vector<std::string> tokenizer_words = {};
  bool overwrite = false;  // else token files that exist are an error
};

struct KeySummary {
  std::string key;
  std::string prefix;  // of the token files
  int64_t num_documents = 0, num_tokens = 0;
  int64_t num_empty = 0;      // texts without a token
  int64_t num_sequences = 0;  // sentences, where texts are split, else documents
  int64_t num_long = 0;       // documents that BERT and T5 leave out: several sentences, one of over 512 tokens
};

struct PreprocessSummary {
  int64_t num_records = 0;
  MalformedTally malformed;
  int64_t num_replaced_bytes = 0;       // of invalid UTF-8, in texts
  int64_t num_replaced_surrogates = 0;  // with replace_lone_surrogates
  int64_t input_bytes = 0;              // on disk
  int64_t record_bytes = 0;             // decompressed
  double seconds = 0;
  std::vector<KeySummary> keys;
};

// Adds everything that would stop preprocess() after it began: inputs that do not exist, outputs that do, keys given
// twice, a tokenizer without the wanted token (no tokenizer, if it could not be loaded: its problems are known then).
void check(const PreprocessOptions& options, const text::Tokenizer* tokenizer, Problems& problems);

// Shows progress on stderr. A UserError leaves no token files, and those of an earlier run as they were. One process at
// a time writes to a prefix.
PreprocessSummary preprocess(const PreprocessOptions& options, const text::Tokenizer& tokenizer);

}  // namespace espalier::data
