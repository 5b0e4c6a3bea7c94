#include <algorithm>
#include <cfloat>

#include "base/error.h"
#include "base/format.h"
#include "text/internal/sentencepiece_encoder.h"
#include "text/utf8.h"

namespace espalier::text::internal {

namespace {

// Bytes of a character at the start of what may be no UTF-8; 0 if there is none.
size_t leading_character(std::string_view bytes) {
  for (size_t size = 1; size <= std::min<size_t>(4, bytes.size()); ++size) {
    if (valid_utf8_prefix(bytes.substr(0, size)) == size) return size;
  }
  return 0;
}

}  // namespace

SentencePieceProcessor::SentencePieceProcessor(SentencePieceModel model, const std::string& where)
    : model_(std::move(model)) {
  for (size_t index = 0; index < model_.pieces.size(); ++index) {
    const auto id = static_cast<int32_t>(index);
    const auto& piece = model_.pieces[index];
    (model_.is_text_piece(id) ? pieces_ : names_).emplace(piece.text, id);
    if (piece.type == PieceType::kUserDefined) {
      kept_.add(piece.text, id);
      has_kept_ = true;
    }
    const bool several = static_cast<size_t>(decode_utf8(piece.text.data()).num_bytes) < piece.text.size();
    if (piece.type == PieceType::kUnused && several && model_.kind == SentencePieceModel::Kind::kBpe) {
      throw UserError(concat("'", where, "': piece ", id, " '", piece.text,
                             "' is unused (type 5), which is not supported in a BPE model; make it a normal one (1)"),
                      ExitCode::kBadData);
    }
  }
  normalizer_ = std::make_unique<SentencePieceNormalizer>(model_.normalizer, has_kept_ ? &kept_ : nullptr);
  if (model_.has_denormalizer) denormalizer_ = std::make_unique<SentencePieceNormalizer>(model_.denormalizer, nullptr);
  if (model_.kind == SentencePieceModel::Kind::kUnigram) make_unigram();
  if (model_.kind == SentencePieceModel::Kind::kBpe) bpe_ = std::make_unique<SentencePieceBpe>(model_, kept_);
  find_joined_characters();
  for (const auto& piece : model_.pieces) decoded_id_.push_back(piece_to_id(piece.text));
}

void SentencePieceProcessor::make_unigram() {
  unigram_ = std::make_unique<Unigram>(Unigram::Sums::kFloat, 4 * model_.pieces.size());
  float smallest = FLT_MAX;
  for (const auto& piece : model_.pieces) {
    if (piece.type == PieceType::kNormal) smallest = std::min(smallest, piece.score);
  }
  constexpr float kUnknownPenalty = 10;
  unigram_->set_unknown_score(static_cast<double>(smallest - kUnknownPenalty));
  for (size_t index = 0; index < model_.pieces.size(); ++index) {
    const auto& piece = model_.pieces[index];
    const auto id = static_cast<int32_t>(index);
    if (piece.type == PieceType::kNormal) unigram_->add(piece.text, id, static_cast<double>(piece.score));
    if (piece.type == PieceType::kUserDefined) unigram_->add_user_defined(piece.text, id);
  }
}

void SentencePieceProcessor::find_joined_characters() {
  for (const auto& [text, id] : pieces_) {
    for (size_t at = text.find(kVisibleBlank, 1); at != std::string::npos; at = text.find(kVisibleBlank, at + 1)) {
      joined_characters_.insert(decode_utf8(previous_utf8(text.data() + at)).code);
    }
  }
}

size_t SentencePieceProcessor::word_end(std::string_view text) const {
  size_t at = static_cast<size_t>(decode_utf8(text.data()).num_bytes);
  while (true) {
    at = text.find(kVisibleBlank, at);
    if (at == std::string_view::npos) return text.size();
    if (joined_characters_.empty() ||
        joined_characters_.count(decode_utf8(previous_utf8(text.data() + at)).code) == 0) {
      return at;
    }
    at += kVisibleBlank.size();
  }
}

int32_t SentencePieceProcessor::piece_to_id(std::string_view piece) const {
  return find(piece).value_or(model_.unknown_id);
}

std::optional<int32_t> SentencePieceProcessor::find(std::string_view piece) const {
  const std::string text(piece);
  for (const auto* map : {&names_, &pieces_}) {
    const auto found = map->find(text);
    if (found != map->end()) return found->second;
  }
  return std::nullopt;
}

std::optional<int32_t> SentencePieceProcessor::control_id(const std::string& piece) const {
  const int32_t id = piece_to_id(piece);
  if (model_.pieces[static_cast<size_t>(id)].type != PieceType::kControl) return std::nullopt;
  return id;
}

void SentencePieceProcessor::append_ids(std::string_view word, int32_t id, size_t begin, size_t end,
                                        std::vector<int32_t>& ids) const {
  if (id < 0) id = model_.unknown_id;
  if (id != model_.unknown_id || !model_.byte_fallback) {
    ids.push_back(id);
    return;
  }
  for (const char byte : word.substr(begin, end - begin)) {
    ids.push_back(model_.byte_ids[static_cast<uint8_t>(byte)]);
  }
}

void SentencePieceProcessor::cut_bpe(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  std::vector<SentencePieceBpe::Node>& nodes = scratch.bpe_nodes;
  nodes.clear();
  if (bpe_) {
    bpe_->cut(word, scratch.bpe, nodes);
  } else if (model_.kind == SentencePieceModel::Kind::kWord) {
    nodes.push_back({-1, 0, static_cast<uint32_t>(word.size())});
  } else {
    for (size_t at = 0; at < word.size();) {
      size_t bytes = kept_.longest(word.substr(at));
      if (bytes == 0) bytes = static_cast<size_t>(decode_utf8(word.data() + at).num_bytes);
      nodes.push_back({-1, static_cast<uint32_t>(at), static_cast<uint32_t>(at + bytes)});
      at += bytes;
    }
  }
  for (auto& node : nodes) {
    if (!bpe_) node.id = piece_to_id(word.substr(node.begin, node.end - node.begin));
    append_ids(word, node.id, node.begin, node.end, ids);
  }
}

void SentencePieceProcessor::cut_word(std::string_view word, double& total, Scratch& scratch,
                                      std::vector<int32_t>& ids) const {
  if (!unigram_) return cut_bpe(word, scratch, ids);
  scratch.unigram_nodes.clear();
  unigram_->cut(word, total, scratch.unigram, scratch.unigram_nodes);
  for (const Unigram::Node& node : scratch.unigram_nodes) append_ids(word, node.id, node.begin, node.end, ids);
}

double SentencePieceProcessor::cut_word_with_limit(std::string_view word, Scratch& scratch,
                                                   std::vector<int32_t>& ids) const {
  if (!unigram_) {
    cut_bpe(word, scratch, ids);
    return DBL_MAX;
  }
  scratch.unigram_nodes.clear();
  double limit = unigram_->cut_with_limit(word, scratch.unigram, scratch.unigram_nodes);
  for (const Unigram::Node& node : scratch.unigram_nodes) {
    // The bytes of an unknown character do not determine its score.
    if (node.id < 0 && model_.byte_fallback) limit = -1;
    append_ids(word, node.id, node.begin, node.end, ids);
  }
  return limit;
}

std::string SentencePieceProcessor::decode(std::span<const int32_t> ids) const {
  const bool drops_blank = model_.normalizer.add_dummy_prefix || model_.normalizer.remove_extra_whitespaces;
  std::string text, bytes;
  const auto flush_bytes = [&] {
    std::string_view left = bytes;
    while (!left.empty()) {
      const size_t size = leading_character(left);
      text += size == 0 ? std::string_view("\uFFFD") : left.substr(0, size);
      left.remove_prefix(std::max<size_t>(size, 1));
    }
    bytes.clear();
  };
  bool at_begin = true, blank_dropped = false;
  for (const int32_t given : ids) {
    if (given < 0 || static_cast<size_t>(given) >= model_.pieces.size()) continue;
    const int32_t id = decoded_id_[static_cast<size_t>(given)];
    const auto& piece = model_.pieces[static_cast<size_t>(id)];
    if (piece.type == PieceType::kByte) {
      bytes += static_cast<char>(byte_of_piece(piece.text));
      continue;
    }
    flush_bytes();
    if (blank_dropped || !text.empty()) at_begin = false;
    blank_dropped = false;
    if (piece.type == PieceType::kControl) continue;
    if (piece.type == PieceType::kUnknown) {
      text += model_.unknown_surface;
      continue;
    }
    std::string_view surface = piece.text;
    if (at_begin && drops_blank && surface.substr(0, kVisibleBlank.size()) == kVisibleBlank) {
      surface.remove_prefix(kVisibleBlank.size());
      // With remove_extra_whitespaces all leading blanks go, one from each piece.
      blank_dropped = !model_.normalizer.remove_extra_whitespaces;
    }
    for (size_t at = 0; at < surface.size();) {
      const bool blank = surface.substr(at, kVisibleBlank.size()) == kVisibleBlank;
      text += blank ? ' ' : surface[at];
      at += blank ? kVisibleBlank.size() : 1;
    }
  }
  flush_bytes();
  if (!denormalizer_) return text;
  std::string denormalized;
  denormalizer_->apply(text, denormalized);
  return denormalized;
}

}  // namespace espalier::text::internal
