#include "text/internal/sentencepiece_bpe.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/error.h"
#include "text/utf8.h"

namespace espalier::text::internal {

namespace {

size_t character_bytes(std::string_view text) { return static_cast<size_t>(decode_utf8(text.data()).num_bytes); }

}  // namespace

SentencePieceBpe::SentencePieceBpe(const SentencePieceModel& model, const PieceTrie& kept)
    : kept_(kept), table_(0), merges_(4 * model.pieces.size()) {
  number_characters(model);
  add_merges(model);
  name_symbols(model);
}

void SentencePieceBpe::number_characters(const SentencePieceModel& model) {
  std::set<std::string> pieces, characters;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (!model.is_text_piece(static_cast<int32_t>(id))) continue;
    const std::string& text = model.pieces[id].text;
    pieces.insert(text);
    for (size_t at = 0; at < text.size();) {
      const size_t bytes = character_bytes(std::string_view(text).substr(at));
      characters.insert(text.substr(at, bytes));
      at += bytes;
    }
  }
  std::set_difference(characters.begin(), characters.end(), pieces.begin(), pieces.end(),
                      std::back_inserter(characters_));
  table_ = PieceTable(pieces.size() + characters_.size());
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.is_text_piece(static_cast<int32_t>(id))) table_.add(model.pieces[id].text, static_cast<int32_t>(id));
  }
  for (size_t i = 0; i < characters_.size(); ++i) {
    table_.add(characters_[i], static_cast<int32_t>(model.pieces.size() + i));
  }
}

// A piece is made by joining any two symbols that are its halves.
void SentencePieceBpe::add_merges(const SentencePieceModel& model) {
  std::vector<float> scores;
  for (const auto& piece : model.pieces) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  const auto is_joined = [&model](int32_t symbol) {
    return symbol >= static_cast<int32_t>(model.pieces.size()) ||
           model.pieces[static_cast<size_t>(symbol)].type != PieceType::kUserDefined;
  };
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& piece = model.pieces[id];
    if (!model.is_text_piece(static_cast<int32_t>(id)) || !is_joined(static_cast<int32_t>(id))) continue;
    const std::string_view text = piece.text;
    const auto rank = std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>()) - scores.begin();
    for (size_t cut = character_bytes(text); cut < text.size(); cut += character_bytes(text.substr(cut))) {
      const int32_t left = symbol_of(text.substr(0, cut)), right = symbol_of(text.substr(cut));
      if (left < 0 || right < 0 || !is_joined(left) || !is_joined(right)) continue;
      merges_.add_ranked(left, right, static_cast<int32_t>(id), static_cast<uint32_t>(rank));
    }
  }
}

void SentencePieceBpe::name_symbols(const SentencePieceModel& model) {
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    id_of_symbol_.push_back(static_cast<int32_t>(id));
    symbol_bytes_.push_back(static_cast<uint32_t>(model.pieces[id].text.size()));
  }
  for (const std::string& character : characters_) {
    id_of_symbol_.push_back(-1);
    symbol_bytes_.push_back(static_cast<uint32_t>(character.size()));
  }
}

void SentencePieceBpe::cut(std::string_view text, Scratch& scratch, std::vector<Node>& nodes) const {
  std::vector<int32_t>& symbols = scratch.symbols;
  symbols.clear();
  for (size_t at = 0; at < text.size();) {
    size_t bytes = kept_.longest(text.substr(at));
    if (bytes == 0) bytes = character_bytes(text.substr(at));
    const int32_t symbol = symbol_of(text.substr(at, bytes));
    symbols.push_back(symbol < 0 ? kNoSymbol : symbol);
    at += bytes;
  }
  const size_t count = merges_.merge(symbols.data(), symbols.size(), scratch.merges);
  size_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    const int32_t symbol = symbols[i];
    const size_t bytes = symbol < 0 ? character_bytes(text.substr(begin)) : symbol_bytes_[static_cast<size_t>(symbol)];
    nodes.push_back({symbol < 0 ? -1 : id_of_symbol_[static_cast<size_t>(symbol)], static_cast<uint32_t>(begin),
                     static_cast<uint32_t>(begin + bytes)});
    begin += bytes;
  }
}

}  // namespace espalier::text::internal
