#include "text/internal/char_bpe.h"

#include "base/format.h"
#include "text/utf8.h"

namespace espalier::text::internal {

CharBpe::CharBpe(BpeModel model) : model_(std::move(model)) {
  if (!model_.unknown.empty()) unknown_id_ = model_.vocabulary.at(model_.unknown);
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = model_.vocabulary.find(format_printf("<0x%02X>", byte));
    byte_ids_.push_back(found == model_.vocabulary.end() ? -1 : found->second);
  }
}

void CharBpe::encode_word(std::string_view word, WordScratch& scratch, std::vector<int32_t>& ids) const {
  if (model_.ignore_merges) {
    const auto whole = model_.vocabulary.find(std::string(word));
    if (whole != model_.vocabulary.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  const size_t before = ids.size();
  Unknown unknown;
  std::string character;
  for (size_t at = 0; at < word.size();) {
    const auto bytes = static_cast<size_t>(decode_utf8(word.data() + at).num_bytes);
    character.clear();
    if (at > 0) character += model_.continuing_prefix;
    character += word.substr(at, bytes);
    at += bytes;
    if (at == word.size()) character += model_.end_of_word_suffix;
    add_character(character, unknown, ids);
  }
  if (unknown.pending) ids.push_back(unknown_id_);
  ids.resize(before + model_.merges.merge(ids.data() + before, ids.size() - before, scratch.merges));
}

// An unknown character is written when the next one is known, so that neighbours can become one; byte pieces go before
// one that waits, as in tokenizers.
void CharBpe::add_character(const std::string& character, Unknown& unknown, std::vector<int32_t>& ids) const {
  const auto found = model_.vocabulary.find(character);
  if (found != model_.vocabulary.end()) {
    if (unknown.pending) ids.push_back(unknown_id_);
    unknown.pending = false;
    ids.push_back(found->second);
    return;
  }
  if (model_.byte_fallback) {
    bool all = true;
    for (const char byte : character) all = all && byte_ids_[static_cast<uint8_t>(byte)] >= 0;
    if (all) {
      for (const char byte : character) ids.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
      return;
    }
  }
  if (unknown_id_ < 0) return;
  if (unknown.pending && !model_.fuse_unknown) ids.push_back(unknown_id_);
  unknown.pending = true;
}

}  // namespace espalier::text::internal
