// A SentencePiece .model file, as read: the message ModelProto of sentencepiece_model.proto.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "text/internal/chars_map.h"

namespace espalier::text::internal {

enum class PieceType : uint8_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct SentencePieceRules {  // NormalizerSpec
  CharsMap chars_map;
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
  bool prefix_is_suffix = false;  // TrainerSpec.treat_whitespace_as_suffix
};

struct SentencePieceModel {
  enum class Kind : uint8_t { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };
  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::kNormal;
  };

  std::vector<Piece> pieces;  // by id
  Kind kind = Kind::kUnigram;
  bool byte_fallback = false;
  std::string bos_piece = "<s>", eos_piece = "</s>", pad_piece = "<pad>";
  std::string unknown_surface = " \u2047 ";  // what the unknown piece is decoded to
  SentencePieceRules normalizer;
  SentencePieceRules denormalizer;  // applied to what was decoded, if has_denormalizer
  bool has_denormalizer = false;
  int32_t unknown_id = -1;
  std::vector<int32_t> byte_ids;  // with byte_fallback: 256

  // Normal, user-defined and unused pieces are what a text is cut into; the others are only names of ids.
  bool is_text_piece(int32_t id) const {
    const PieceType type = pieces[static_cast<size_t>(id)].type;
    return type == PieceType::kNormal || type == PieceType::kUserDefined || type == PieceType::kUnused;
  }
};

// Throws UserError with the file, the byte or the piece, what was expected and what was found.
SentencePieceModel read_sentencepiece_model(const std::filesystem::path& path);

// True if the file could be one: its first field is a piece.
bool looks_like_sentencepiece_model(std::string_view content);

// The byte that a piece of the form <0x0A> stands for, or -1.
int byte_of_piece(std::string_view piece);

}  // namespace espalier::text::internal
