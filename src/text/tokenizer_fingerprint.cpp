#include "text/tokenizer_fingerprint.h"

#include <string>

#include "base/error.h"
#include "base/hash.h"

namespace espalier::text {
namespace {

// Words of many lengths, digits, blanks of several kinds, code and ten scripts.
constexpr const char* kProbe =
    "The quick brown fox jumps over the lazy dog; she'll say it's 1,234,567.89 dollars -- or EUR 42?!\n"
    "Internationalization, counterrevolutionaries, antidisestablishmentarianism and photosynthesis.\n\n"
    "  indented\tby a tab   and three blanks\r\nfor (int i = 0; i != n; ++i) { total += values[i] * 0x7fff; }\n"
    "Le c\xc5\x93ur d\xc3\xa9\xc3\xa7u mais l'\xc3\xa2me plut\xc3\xb4t na\xc3\xafve; Stra\xc3\x9f"
    "e, \xc3\x9c"
    "bergr\xc3\xb6\xc3\x9f"
    "e.\n"
    "\xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82, \xd0\xbc\xd0\xb8\xd1\x80! "
    "\xce\x93\xce\xb5\xce\xb9\xce\xac \xcf\x83\xce\xbf\xcf\x85 "
    "\xd9\x85\xd8\xb1\xd8\xad\xd8\xa8\xd8\xa7 \xd8\xa8\xd8\xa7\xd9\x84\xd8\xb9\xd8\xa7\xd9\x84\xd9\x85 "
    "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d \xe0\xa4\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87 "
    "\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c\xe4\xb8\x96\xe7\x95\x8c "
    "\xe3\x81\x93\xe3\x82\x93\xe3\x81\xab\xe3\x81\xa1\xe3\x81\xaf "
    "\xec\x95\x88\xeb\x85\x95\xed\x95\x98\xec\x84\xb8\xec\x9a\x94 "
    "\xe0\xb8\xaa\xe0\xb8\xa7\xe0\xb8\xb1\xe0\xb8\xaa\xe0\xb8\x94\xe0\xb8\xb5 "
    "\xe0\xa6\xac\xe0\xa6\xbe\xe0\xa6\x82\xe0\xa6\xb2\xe0\xa6\xbe "
    "\xf0\x9f\x98\x80\xf0\x9f\x87\xab\xf0\x9f\x87\xb7 e\xcc\x81 \xef\xac\x81\n";

uint64_t fingerprint_of(const Tokenizer& tokenizer, int64_t vocab_size) {
  Hasher hasher;
  hasher.update(&vocab_size, sizeof vocab_size);
  for (int64_t id = 0; id < vocab_size; ++id) {
    const std::string piece = tokenizer.id_to_piece(static_cast<int32_t>(id));
    const uint64_t length = piece.size();  // so that the ends of pieces count
    hasher.update(&length, sizeof length);
    hasher.update(piece.data(), piece.size());
  }
  if (!tokenizer.encodes_any_text()) return hasher.digest();
  const std::vector<int32_t> ids = tokenizer.encode(kProbe);
  hasher.update(ids.data(), ids.size() * sizeof(int32_t));
  return hasher.digest();
}

}  // namespace

uint64_t fingerprint(const Tokenizer& tokenizer) { return fingerprint_of(tokenizer, tokenizer.vocab_size()); }

std::optional<uint64_t> fingerprint_without_sentinels(const Tokenizer& tokenizer, int64_t num_ids) {
  const int64_t all = tokenizer.vocab_size();
  if (num_ids < 0 || num_ids >= all) return std::nullopt;
  for (int64_t id = num_ids; id < all; ++id)
    if (tokenizer.id_to_piece(static_cast<int32_t>(id)) != concat("<extra_id_", id - num_ids, ">")) return std::nullopt;
  return fingerprint_of(tokenizer, num_ids);
}

}  // namespace espalier::text
