#include "text/internal/sentencepiece_model.h"

#include <cmath>
#include <unordered_set>

#include "base/error.h"
#include "base/format.h"
#include "text/internal/protobuf_reader.h"
#include "text/internal/tokenizer_file.h"

namespace espalier::text::internal {

namespace {

using Model = SentencePieceModel;

Model::Piece read_piece(ProtobufReader fields) {
  Model::Piece piece;
  while (fields.next()) {
    if (fields.field() == 1) {
      piece.text = fields.text("piece");
    } else if (fields.field() == 2) {
      piece.score = fields.number("score");
      if (!std::isfinite(piece.score)) fields.fail("the score of '" + piece.text + "' is not a finite number");
    } else if (fields.field() == 3) {
      const int64_t type = fields.whole_number("type");
      if (type < 1 || type > 6) fields.fail(concat("piece '", piece.text, "' has type ", type, ", expected 1 to 6"));
      piece.type = static_cast<PieceType>(type);
    }
  }
  constexpr size_t kMaxBytes = 8000;  // sentencepiece's own limit
  if (piece.text.empty() || piece.text.size() >= kMaxBytes) {
    fields.fail(concat("a piece has ", piece.text.size(), " bytes, expected 1 to ", kMaxBytes - 1));
  }
  return piece;
}

void read_trainer(ProtobufReader fields, Model& model) {
  const auto name = [&fields](const char* what, std::string& target) {
    const std::string found = fields.text(what);
    if (!found.empty()) target = found;
  };
  while (fields.next()) {
    switch (fields.field()) {
      case 3: {
        const int64_t kind = fields.whole_number("model_type");
        if (kind < 1 || kind > 4) {
          fields.fail(concat("model_type is ", kind, ", expected 1 (unigram), 2 (BPE), 3 (word) or 4 (character)"));
        }
        model.kind = static_cast<Model::Kind>(kind);
        break;
      }
      case 24: model.normalizer.prefix_is_suffix = fields.flag("treat_whitespace_as_suffix"); break;
      case 35: model.byte_fallback = fields.flag("byte_fallback"); break;
      case 44: model.unknown_surface = fields.text("unk_surface"); break;
      case 46: name("bos_piece", model.bos_piece); break;
      case 47: name("eos_piece", model.eos_piece); break;
      case 48: name("pad_piece", model.pad_piece); break;
      default: break;
    }
  }
}

void read_rules(ProtobufReader fields, const std::string& where, SentencePieceRules& rules) {
  while (fields.next()) {
    switch (fields.field()) {
      case 2: rules.chars_map = CharsMap(fields.bytes("precompiled_charsmap"), where + ".precompiled_charsmap"); break;
      case 3: rules.add_dummy_prefix = fields.flag("add_dummy_prefix"); break;
      case 4: rules.remove_extra_whitespaces = fields.flag("remove_extra_whitespaces"); break;
      case 5: rules.escape_whitespaces = fields.flag("escape_whitespaces"); break;
      default: break;
    }
  }
}

void check_pieces(Model& model, const std::string& path) {
  const auto fail = [&path](const std::string& complaint) {
    throw UserError(concat("'", path, "': ", complaint), ExitCode::kBadData);
  };
  std::unordered_set<std::string> text_pieces, names;
  std::vector<int32_t> byte_ids(256, -1);
  for (size_t index = 0; index < model.pieces.size(); ++index) {
    const Model::Piece& piece = model.pieces[index];
    const auto id = static_cast<int32_t>(index);
    const std::string shown = concat("piece ", id, " '", piece.text, "'");
    if (!(model.is_text_piece(id) ? text_pieces : names).insert(piece.text).second) fail(shown + " occurs twice");
    if (piece.type == PieceType::kUnknown) {
      if (model.unknown_id >= 0) fail(concat(shown, " is a second unknown piece, after ", model.unknown_id));
      model.unknown_id = id;
    }
    if (piece.type == PieceType::kByte) {
      const int byte = byte_of_piece(piece.text);
      if (byte < 0) fail(shown + " is of type byte; expected the form <0x0A>");
      byte_ids[static_cast<size_t>(byte)] = id;
    }
  }
  if (model.unknown_id < 0) fail(concat("none of the ", model.pieces.size(), " pieces is of type unknown (2)"));
  if (!model.byte_fallback) return;
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_ids[static_cast<size_t>(byte)] < 0) {
      fail(format_printf("byte_fallback is set, but there is no piece <0x%02X>", byte));
    }
  }
  model.byte_ids = std::move(byte_ids);
}

}  // namespace

int byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return -1;
  int value = 0;
  for (const char digit : piece.substr(3, 2)) {
    const bool decimal = digit >= '0' && digit <= '9', letter = digit >= 'A' && digit <= 'F';
    if (!decimal && !letter) return -1;
    value = value * 16 + (decimal ? digit - '0' : digit - 'A' + 10);
  }
  return value;
}

SentencePieceModel read_sentencepiece_model(const std::filesystem::path& path) {
  const std::string content = read_tokenizer_file(path);
  if (content.starts_with("{"))
    throw UserError(
        concat("'", path.string(), "' is JSON, not a SentencePiece model. A tokenizer.json is read by ",
               "--tokenizer-type PretrainedFromHF --tokenizer-name-or-path, a vocab.json by GPT2BPETokenizer ",
               "--vocab-file with --merge-file."),
        ExitCode::kBadData);
  Model model;
  ProtobufReader fields(content, path.string());
  while (fields.next()) {
    switch (fields.field()) {
      case 1: model.pieces.push_back(read_piece(fields.message("pieces"))); break;
      case 2: read_trainer(fields.message("trainer_spec"), model); break;
      case 3: {
        const std::string where = "'" + path.string() + "': normalizer_spec";
        read_rules(fields.message("normalizer_spec"), where, model.normalizer);
        break;
      }
      case 5: {
        const std::string where = "'" + path.string() + "': denormalizer_spec";
        read_rules(fields.message("denormalizer_spec"), where, model.denormalizer);
        model.has_denormalizer = !model.denormalizer.chars_map.empty();
        break;
      }
      default: break;
    }
  }
  if (model.pieces.empty()) {
    throw UserError(
        concat("'", path.string(), "' (", content.size(), " bytes) holds no pieces of a SentencePiece model"),
        ExitCode::kBadData);
  }
  check_pieces(model, path.string());
  return model;
}

bool looks_like_sentencepiece_model(std::string_view content) {
  // Field 1, a message of at most 127 bytes that begins with field 1, a string.
  return content.size() > 4 && content[0] == 0x0A && content[2] == 0x0A;
}

}  // namespace espalier::text::internal
