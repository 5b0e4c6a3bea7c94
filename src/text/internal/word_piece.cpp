#include "text/internal/word_piece.h"

#include <algorithm>

namespace espalier::text::internal {

namespace {

size_t total_bytes(const std::vector<std::string>& pieces) {
  size_t bytes = 0;
  for (const std::string& piece : pieces) bytes += piece.size();
  return bytes;
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; });
}

}  // namespace

WordPiece::WordPiece(const std::vector<std::string>& pieces, Options options)
    : options_(std::move(options)), beginning_(total_bytes(pieces)), continuing_(total_bytes(pieces)) {
  const std::string& prefix = options_.continuing_prefix;
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id].empty()) continue;
    beginning_.add(pieces[id], static_cast<int32_t>(id));
    const std::string_view piece = pieces[id];
    if (piece.size() > prefix.size() && piece.substr(0, prefix.size()) == prefix) {
      continuing_.add(piece.substr(prefix.size()), static_cast<int32_t>(id));
    }
  }
}

void WordPiece::encode_word(std::string_view word, WordScratch&, std::vector<int32_t>& ids) const {
  const size_t before = ids.size();
  bool is_known = count_characters(word) <= options_.max_characters;
  for (size_t begin = 0; begin < word.size() && is_known;) {
    PieceTrie::Walk walk = (begin == 0 ? beginning_ : continuing_).walk();
    size_t longest = begin;
    int32_t id = -1;
    for (size_t end = begin; end < word.size() && walk.step(word[end]);) {
      ++end;
      if (walk.value() < 0) continue;
      longest = end;
      id = walk.value();
    }
    is_known = id >= 0;
    if (is_known) ids.push_back(id);
    begin = longest;
  }
  if (is_known) return;
  ids.resize(before);
  ids.push_back(options_.unknown_id);
}

WordLevel::WordLevel(const std::vector<std::string>& pieces, int32_t unknown_id)
    : unknown_id_(unknown_id), words_(total_bytes(pieces)) {
  for (size_t id = 0; id < pieces.size(); ++id) words_.add(pieces[id], static_cast<int32_t>(id));
}

void WordLevel::encode_word(std::string_view word, WordScratch&, std::vector<int32_t>& ids) const {
  const int32_t id = words_.find(word);
  ids.push_back(id < 0 ? unknown_id_ : id);
}

}  // namespace espalier::text::internal
