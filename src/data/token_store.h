// Token files: `<prefix>.bin` holds the ids of all sequences one after another, `<prefix>.idx` where each begins.
//
// These are Megatron's mmap files, read and written as they are (docs/data-path.md has the layout). A document is one
// or more sequences; text for GPT has one sequence per document, and GPT's sample order counts sequences.
//
//   const TokenStore store("data/wiki_text_document");
//   std::vector<int64_t> ids(store.size(7));
//   store.read(/*sequence=*/7, /*offset=*/0, store.size(7), ids.data());
//
// Opening costs two mmaps and a few comparisons, however many tokens there are (of an old TNTIDX index, a pass over
// it); check_all() walks the index. A file that is truncated, oversized or contradicts itself is refused with the
// field, the expected and the found value (UserError, exit code 65).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/pending_file.h"
#include "data/document_sizes.h"
#include "data/token_files.h"
#include "data/token_index.h"

namespace espalier::data {

// Megatron's rule: uint16 below 65,500 ids (unpadded), else int32.
TokenType token_type_for(int64_t vocab_size);

// Immutable; any number of threads may read.
class TokenStore {
 public:
  // Finds misnamed files as find_token_files() does, with a warning.
  explicit TokenStore(const std::string& prefix);

  const std::string& prefix() const { return prefix_; }
  const TokenFiles& files() const { return files_; }
  IndexFormat format() const { return index_.format(); }
  TokenType type() const { return index_.type(); }
  int64_t num_sequences() const { return index_.num_sequences(); }
  int64_t num_documents() const { return index_.num_documents(); }
  int64_t num_tokens() const { return num_bytes() / bytes_per_token(type()); }
  int64_t num_bytes() const { return static_cast<int64_t>(token_file_.size()); }  // of the .bin

  int64_t size(int64_t sequence) const { return index_.size(sequence); }  // in tokens; an int32 in the file
  // All of them, for index builders; the store must outlive the view.
  DocumentSizes sizes() const { return index_.sizes(); }
  // Sequences first_sequence(d) .. first_sequence(d + 1) - 1 are document d; d = num_documents() gives the end.
  int64_t first_sequence(int64_t document) const { return index_.first_sequence(document); }
  // All of them; the store must outlive the view.
  DocumentMarks document_marks() const { return index_.document_marks(); }

  // Copies `length` ids from `offset` on. The range must be inside the sequence.
  void read(int64_t sequence, int64_t offset, int64_t length, int64_t* ids) const;
  void read(int64_t sequence, int64_t offset, int64_t length, int32_t* ids) const;

  // One pass over the index (not the tokens): every size, start and document mark agrees with the others.
  void check_all() const { index_.check_all(); }
  const TokenIndex& index() const { return index_; }

 private:
  const uint8_t* range(int64_t sequence, int64_t offset, int64_t length) const;

  std::string prefix_;
  TokenFiles files_;
  MappedFile index_file_, token_file_;
  TokenIndex index_;  // over the mapping
};

// Writes a pair of token files in one pass; memory does not grow with what is written.
//
//   TokenStoreWriter writer("data/wiki_text_document", token_type_for(tokenizer.vocab_size()));
//   writer.add_sequence(ids);
//   writer.end_document();
//   writer.finish();
//
// Until finish() everything is under `<prefix>.*.tmp`, and a pair of that prefix that exists stays as it is. A
// process killed at any moment leaves either the old pair, the new pair, or no .idx. Without finish() the temporary
// files are removed.
class TokenStoreWriter {
 public:
  TokenStoreWriter(const std::string& prefix, TokenType type);
  ~TokenStoreWriter();
  TokenStoreWriter(const TokenStoreWriter&) = delete;
  TokenStoreWriter& operator=(const TokenStoreWriter&) = delete;

  // Ids must fit the type: one that does not is a bug of the tokenizer.
  void add_sequence(std::span<const int32_t> ids);
  // Ends the document of the sequences added since the last call.
  void end_document();
  // Appends all of another store; its type must be the same. Its tokens are copied by the system, 64 MiB at a time;
  // `copied` receives how many bytes each time.
  void append(const TokenStore& other, const std::function<void(int64_t)>& copied = nullptr);
  // Writes what is left, which may take a while; nothing can be added any more.
  void prepare();
  // The same, if that was not done, and puts the files into their places.
  void finish();

  int64_t num_sequences() const { return num_sequences_; }
  int64_t num_documents() const { return num_documents_; }
  int64_t num_tokens() const { return num_tokens_; }

 private:
  // Collects small writes.
  class Buffered;

  void add_size(int64_t num_tokens);
  void write_starts();
  void copy_document_marks();
  void rename_into_place();

  std::string prefix_;
  TokenType type_;
  PendingFolder folder_;
  PendingFile token_file_, index_file_, mark_file_;
  std::unique_ptr<Buffered> tokens_;          // becomes .bin
  std::unique_ptr<Buffered> index_;           // becomes .idx: the sizes are written as they come, the rest at the end
  std::unique_ptr<Buffered> document_marks_;  // appended to .idx at the end
  int64_t num_sequences_ = 0, num_documents_ = 0, num_tokens_ = 0;
  bool prepared_ = false, finished_ = false;
  std::vector<uint16_t> narrow_;
};

}  // namespace espalier::data
