#include "data/token_store.h"

#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "base/log.h"

namespace espalier::data {
namespace {

TokenFiles find_or_refuse(const std::string& prefix) {
  if (std::optional<TokenFiles> files = find_token_files(prefix)) {
    if (!files->remark.empty()) warn_once(files->remark);
    refuse_git_lfs_pointers(*files);
    return *files;
  }
  // A prefix that names one of the two files is the commonest slip; say so instead of looking for "x.idx.idx".
  for (const char* ending : {".idx", ".bin"})
    if (prefix.ends_with(ending))
      throw UserError(concat("'", prefix, "' is one of two files; a data set is named by what they share. Use '",
                             prefix.substr(0, prefix.size() - 4), "'."),
                      ExitCode::kUsage);
  std::error_code error;
  throw UserError(describe_missing(prefix),
                  std::filesystem::is_regular_file(prefix, error) ? ExitCode::kBadData : ExitCode::kMissingInput);
}

std::span<const uint8_t> bytes_of(const MappedFile& file) { return {file.data(), file.size()}; }

template <class From, class To>
void widen(const uint8_t* bytes, int64_t count, To* ids) {
  if constexpr (std::is_same_v<From, To>) {
    if (count > 0) std::memcpy(ids, bytes, static_cast<size_t>(count) * sizeof(To));
  } else {
    for (int64_t at = 0; at < count; ++at) {
      From value;
      std::memcpy(&value, bytes + at * static_cast<int64_t>(sizeof(From)), sizeof(From));
      ids[at] = static_cast<To>(value);
    }
  }
}

}  // namespace

TokenType token_type_for(int64_t vocab_size) { return vocab_size < 65500 ? TokenType::kUint16 : TokenType::kInt32; }

TokenStore::TokenStore(const std::string& prefix)
    : prefix_(prefix),
      files_(find_or_refuse(prefix)),
      index_file_(files_.index),
      token_file_(files_.tokens),
      index_(bytes_of(index_file_), files_.index) {
  index_.check_ends(num_bytes(), files_.tokens);
}

const uint8_t* TokenStore::range(int64_t sequence, int64_t offset, int64_t length) const {
  ESPALIER_CHECK(sequence >= 0 && sequence < num_sequences(), "sequence ", sequence, " of ", num_sequences(), " in ",
                 prefix_);
  ESPALIER_CHECK(offset >= 0 && length >= 0 && offset + length <= size(sequence), "tokens ", offset, " to ",
                 offset + length, " of sequence ", sequence, " with ", size(sequence), " in ", prefix_);
  const int64_t start = index_.start_bytes(sequence), bytes = num_bytes();
  // Opening looked only at the last sequence.
  if (start < 0 || start > bytes || start + size(sequence) * bytes_per_token(type()) > bytes)
    index_.refuse(concat("start of sequence ", sequence),
                  concat("its ", size(sequence), " tokens inside the ", bytes, " bytes of the .bin"),
                  concat("byte ", start));
  return token_file_.data() + start + offset * bytes_per_token(type());
}

void TokenStore::read(int64_t sequence, int64_t offset, int64_t length, int64_t* ids) const {
  const uint8_t* bytes = range(sequence, offset, length);
  if (type() == TokenType::kUint16)
    widen<uint16_t>(bytes, length, ids);
  else
    widen<int32_t>(bytes, length, ids);
}

void TokenStore::read(int64_t sequence, int64_t offset, int64_t length, int32_t* ids) const {
  const uint8_t* bytes = range(sequence, offset, length);
  if (type() == TokenType::kUint16)
    widen<uint16_t>(bytes, length, ids);
  else
    widen<int32_t>(bytes, length, ids);
}

}  // namespace espalier::data
