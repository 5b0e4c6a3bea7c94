// The writing half of token_store.h.
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>

#include "base/error.h"
#include "base/format.h"
#include "data/token_store.h"

namespace espalier::data {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr int64_t kIndexHeaderBytes = 34;
constexpr int64_t kCopyBytes = 64 << 20;

void put(std::string& bytes, const void* value, size_t size) { bytes.append(static_cast<const char*>(value), size); }

std::string header(TokenType type, int64_t num_sequences, int64_t num_marks) {
  std::string bytes("MMIDIDX\0\0", 9);
  const uint64_t version = 1;
  put(bytes, &version, 8);
  put(bytes, &type, 1);
  put(bytes, &num_sequences, 8);
  put(bytes, &num_marks, 8);
  ESPALIER_CHECK(bytes.size() == kIndexHeaderBytes);
  return bytes;
}

}  // namespace

class TokenStoreWriter::Buffered {
 public:
  explicit Buffered(const std::string& path) : file_(path) { buffer_.reserve(kBufferBytes); }

  void write(const void* data, size_t size) {
    if (buffer_.size() + size > kBufferBytes) flush();
    if (size >= kBufferBytes)
      file_.write(data, size);
    else
      buffer_.append(static_cast<const char*>(data), size);
  }
  void write_file(const std::string& path, const std::function<void(int64_t)>& copied) {
    flush();
    const InputFile source(path);
    for (int64_t at = 0; at < source.size_bytes(); at += kCopyBytes) {
      const int64_t piece = std::min(kCopyBytes, source.size_bytes() - at);
      file_.write_from(source, at, piece);
      if (copied) copied(piece);
    }
  }
  void flush() {
    file_.write(buffer_.data(), buffer_.size());
    buffer_.clear();
  }
  void close() {
    flush();
    file_.sync();
    file_.close();
  }
  OutputFile& file() { return file_; }
  std::string path() const { return file_.path().string(); }

 private:
  OutputFile file_;
  std::string buffer_;
};

TokenStoreWriter::TokenStoreWriter(const std::string& prefix, TokenType type)
    : prefix_(prefix),
      type_(type),
      folder_(std::filesystem::path(prefix).parent_path()),
      token_file_(prefix + ".bin"),
      index_file_(prefix + ".idx"),
      mark_file_(prefix + ".documents") {
  tokens_ = std::make_unique<Buffered>(token_file_.temporary());
  index_ = std::make_unique<Buffered>(index_file_.temporary());
  document_marks_ = std::make_unique<Buffered>(mark_file_.temporary());
  const std::string room(kIndexHeaderBytes, '\0');  // no magic: the file is not an index before finish()
  index_->write(room.data(), room.size());
  const int64_t first_mark = 0;
  document_marks_->write(&first_mark, sizeof first_mark);
}

TokenStoreWriter::~TokenStoreWriter() = default;

void TokenStoreWriter::add_size(int64_t num_tokens) {
  if (num_tokens > std::numeric_limits<int32_t>::max())
    throw UserError(concat("document ", num_documents_, " of '", prefix_, "' has ", format_count(num_tokens),
                           " tokens; the file format allows ", format_count(std::numeric_limits<int32_t>::max()),
                           " in one sequence. Split the document."),
                    ExitCode::kBadData);
  const int32_t size = static_cast<int32_t>(num_tokens);
  index_->write(&size, sizeof size);
  ++num_sequences_;
  num_tokens_ += num_tokens;
}

void TokenStoreWriter::add_sequence(std::span<const int32_t> ids) {
  add_size(static_cast<int64_t>(ids.size()));
  if (type_ == TokenType::kInt32) {
    tokens_->write(ids.data(), ids.size_bytes());
    return;
  }
  narrow_.resize(ids.size());
  uint32_t seen_bits = 0;
  for (size_t at = 0; at < ids.size(); ++at) {
    seen_bits |= static_cast<uint32_t>(ids[at]);
    narrow_[at] = static_cast<uint16_t>(ids[at]);
  }
  ESPALIER_CHECK(seen_bits <= 0xffff, "an id of document ", num_documents_, " of '", prefix_, "' does not fit uint16");
  tokens_->write(narrow_.data(), narrow_.size() * sizeof(uint16_t));
}

void TokenStoreWriter::end_document() {
  document_marks_->write(&num_sequences_, sizeof num_sequences_);
  ++num_documents_;
}

void TokenStoreWriter::append(const TokenStore& other, const std::function<void(int64_t)>& copied) {
  if (other.type() != type_)
    throw UserError(concat("'", other.prefix(), "' holds ", name_of(other.type()), ", '", prefix_, "' holds ",
                           name_of(type_), ": they cannot be one data set. Preprocess both with the same vocabulary."),
                    ExitCode::kBadData);
  other.check_all();  // opening it did not, and its sizes decide where everything after it begins
  const int64_t shift = num_sequences_;
  for (int64_t sequence = 0; sequence < other.num_sequences(); ++sequence) add_size(other.size(sequence));
  for (int64_t document = 1; document <= other.num_documents(); ++document) {
    const int64_t mark = shift + other.first_sequence(document);
    document_marks_->write(&mark, sizeof mark);
    ++num_documents_;
  }
  tokens_->write_file(other.files().tokens, copied);
}

void TokenStoreWriter::write_starts() {
  index_->flush();
  const MappedFile sizes(index_->path());
  int64_t start = 0;
  for (int64_t sequence = 0; sequence < num_sequences_; ++sequence) {
    int32_t size;
    std::memcpy(&size, sizes.data() + kIndexHeaderBytes + 4 * sequence, sizeof size);
    index_->write(&start, sizeof start);
    start += size * bytes_per_token(type_);
  }
}

void TokenStoreWriter::copy_document_marks() {
  document_marks_->flush();
  const MappedFile marks(document_marks_->path());
  index_->write(marks.data(), marks.size());
}

void TokenStoreWriter::rename_into_place() {
  // The old index goes first: at no moment does it exist next to the new tokens.
  // What is known of the old pair goes with it.
  const UninterruptedSteps together;
  std::error_code error;
  std::filesystem::remove(prefix_ + ".meta.json", error);
  std::filesystem::remove(prefix_ + ".idx", error);
  if (error) throw UserError(concat("cannot replace '", prefix_, ".idx': ", error.message()), ExitCode::kCannotCreate);
  move_into_place({&token_file_, &index_file_});
  const PendingFile not_needed = std::move(mark_file_);
  folder_.keep();
}

void TokenStoreWriter::prepare() {
  ESPALIER_CHECK(!prepared_, prefix_);
  prepared_ = true;
  write_starts();
  copy_document_marks();
  index_->flush();
  const std::string head = header(type_, num_sequences_, num_documents_ + 1);
  index_->file().write_at(head.data(), head.size(), 0);
  tokens_->close();
  index_->close();
  document_marks_.reset();
}

void TokenStoreWriter::finish() {
  ESPALIER_CHECK(!finished_, prefix_);
  if (!prepared_) prepare();
  rename_into_place();
  finished_ = true;
}

}  // namespace espalier::data
