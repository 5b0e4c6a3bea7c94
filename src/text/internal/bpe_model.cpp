#include "text/internal/bpe_model.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "text/internal/byte_level.h"

namespace espalier::text::internal {

namespace {

// Pieces are kept by id, so a wrong id must not ask for all the memory.
constexpr int64_t kMaxId = int64_t{1} << 24;

}  // namespace

void read_vocabulary(const JsonPart& part, BpeModel& model) {
  const JsonPart vocabulary = part.part("vocab");
  int64_t largest = -1;
  for (const auto& [piece, id] : vocabulary.value().items()) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > kMaxId) {
      vocabulary.fail(concat("the id of '", piece, "' is ", id.dump(), ", expected a whole number up to ", kMaxId));
    }
    largest = std::max(largest, id.get<int64_t>());
  }
  model.pieces.resize(static_cast<size_t>(largest + 1));
  model.vocabulary.reserve(vocabulary.value().size());
  for (const auto& [piece, id] : vocabulary.value().items()) {
    const auto index = id.get<int32_t>();
    std::string& known = model.pieces[static_cast<size_t>(index)];
    if (!known.empty()) vocabulary.fail(concat("'", known, "' and '", piece, "' both have the id ", index));
    known = piece;
    model.vocabulary.emplace(piece, index);
  }
}

namespace {

// ["a", "b"] in new files, "a b" in old ones.
std::pair<std::string, std::string> read_merge(const JsonPart& part, size_t index) {
  const nlohmann::json& merge = part.list("merges")[index];
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  if (merge.is_string()) {
    const std::vector<std::string> words = split(merge.get<std::string>(), ' ');
    if (words.size() == 2) return {words[0], words[1]};
  }
  part.fail(concat("merges[", index, "] is ", merge.dump().substr(0, 80), ", expected two pieces"));
}

void read_merges(const JsonPart& part, BpeModel& model) {
  const nlohmann::json& list = part.list("merges");
  model.merges = BpeMerges(list.size());
  const auto id_of = [&](const std::string& piece, size_t index) {
    const auto found = model.vocabulary.find(piece);
    if (found == model.vocabulary.end())
      part.fail(concat("merges[", index, "] needs '", piece, "', which 'vocab' lacks"));
    return found->second;
  };
  for (size_t index = 0; index < list.size(); ++index) {
    if (list[index].is_string() && list[index].get_ref<const std::string&>().rfind("#version", 0) == 0) continue;
    const auto [left, right] = read_merge(part, index);
    if (right.size() < model.continuing_prefix.size()) {
      part.fail(concat("merges[", index, "]: '", right, "' is shorter than the continuing_subword_prefix"));
    }
    const int32_t left_id = id_of(left, index), right_id = id_of(right, index);
    model.merges.add(left_id, right_id, id_of(left + right.substr(model.continuing_prefix.size()), index));
  }
}

}  // namespace

BpeModel read_bpe_model(const JsonPart& part) {
  if (part.has("dropout") && part.value().at("dropout") != 0) {
    part.fail("'dropout' must be null: encoding is deterministic here");
  }
  BpeModel model;
  model.unknown = part.text("unk_token", "");
  model.fuse_unknown = part.flag("fuse_unk", false);
  model.byte_fallback = part.flag("byte_fallback", false);
  model.ignore_merges = part.flag("ignore_merges", false);
  model.continuing_prefix = part.text("continuing_subword_prefix", "");
  model.end_of_word_suffix = part.text("end_of_word_suffix", "");
  read_vocabulary(part, model);
  if (!model.unknown.empty() && model.vocabulary.count(model.unknown) == 0) {
    part.fail("'unk_token' is '" + model.unknown + "', which 'vocab' lacks");
  }
  read_merges(part, model);
  return model;
}

bool is_byte_level(const BpeModel& model) {
  if (!model.continuing_prefix.empty() || !model.end_of_word_suffix.empty()) return false;
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    if (model.vocabulary.count(piece_of_bytes({&character, 1})) == 0) return false;
  }
  return true;
}

ByteBpeSource byte_bpe_source(const BpeModel& model) {
  ByteBpeSource source;
  source.symbol_bytes.reserve(model.pieces.size());
  for (const std::string& piece : model.pieces) source.symbol_bytes.push_back(bytes_of_piece(piece).value_or(""));
  for (int byte = 0; byte < 256; ++byte) {
    const char character = static_cast<char>(byte);
    source.byte_symbols[static_cast<size_t>(byte)] = model.vocabulary.at(piece_of_bytes({&character, 1}));
  }
  source.merges = model.merges;
  source.whole_words_first = model.ignore_merges;
  return source;
}

}  // namespace espalier::text::internal
