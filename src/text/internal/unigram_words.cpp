#include "text/internal/unigram_words.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/format.h"

namespace espalier::text::internal {

UnigramWords::UnigramWords(Source source, const std::unordered_map<std::string, int32_t>& vocabulary)
    : source_(std::move(source)), vocabulary_(vocabulary), unigram_(Unigram::Sums::kDouble, 8 * source_.pieces.size()) {
  double smallest = std::numeric_limits<double>::infinity();
  for (const auto& [piece, score] : source_.pieces) smallest = std::min(smallest, score);
  constexpr double kUnknownPenalty = 10;
  unigram_.set_unknown_score(smallest - kUnknownPenalty);
  for (size_t id = 0; id < source_.pieces.size(); ++id) {
    const auto& [piece, score] = source_.pieces[id];
    if (!piece.empty()) unigram_.add(piece, static_cast<int32_t>(id), score);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = vocabulary_.find(format_printf("<0x%02X>", byte));
    byte_ids_.push_back(found == vocabulary_.end() ? -1 : found->second);
  }
}

// A run of unknown characters may be the text of a piece after all.
void UnigramWords::add_unknown(std::string_view text, std::vector<int32_t>& ids) const {
  const auto known = vocabulary_.find(std::string(text));
  if (known != vocabulary_.end()) {
    ids.push_back(known->second);
    return;
  }
  if (source_.byte_fallback) {
    const bool all =
        std::all_of(text.begin(), text.end(), [this](char byte) { return byte_ids_[static_cast<uint8_t>(byte)] >= 0; });
    if (all) {
      for (const char byte : text) ids.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
      return;
    }
  }
  ids.push_back(source_.unknown_id);
}

void UnigramWords::encode_word(std::string_view word, WordScratch& scratch, std::vector<int32_t>& ids) const {
  std::vector<Unigram::Node>& nodes = scratch.nodes;
  nodes.clear();
  double total = 0;
  unigram_.cut(word, total, scratch.unigram, nodes);
  for (size_t i = 0; i < nodes.size(); ++i) {
    // The text of the unknown piece itself counts as unknown.
    const auto is_unknown = [this](const Unigram::Node& node) { return node.id < 0 || node.id == source_.unknown_id; };
    if (!is_unknown(nodes[i])) {
      ids.push_back(nodes[i].id);
      continue;
    }
    if (source_.unknown_id < 0) {
      throw UserError(concat(source_.where, ": '", word.substr(nodes[i].begin, nodes[i].end - nodes[i].begin),
                             "' is in no piece, and 'unk_id' is null"),
                      ExitCode::kBadData);
    }
    const uint32_t begin = nodes[i].begin;
    while (i + 1 < nodes.size() && is_unknown(nodes[i + 1])) ++i;
    add_unknown(word.substr(begin, nodes[i].end - begin), ids);
  }
}

}  // namespace espalier::text::internal
