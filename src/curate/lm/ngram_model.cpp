#include "curate/lm/ngram_model.h"

#include <algorithm>

#include "base/error.h"

namespace espalier::curate {

NgramModel::NgramModel(const std::string& file)
    : table_(is_kenlm_binary(file) ? open_kenlm_binary(file) : read_arpa(file)) {
  const uint32_t begin = table_->id_of("<s>");
  end_ = table_->id_of("</s>");
  if (begin == 0 || end_ == 0)
    throw UserError(concat("'", file, "': the model has no ", begin == 0 ? "<s>" : "</s>",
                           "; one that was trained on sentences has both"),
                    ExitCode::kBadData);
  NgramNode node;
  begin_.words[0] = begin;
  begin_.backoffs[0] = table_->unigram(begin, node).backoff;
  begin_.length = 1;
}

float NgramModel::score(const State& state, uint32_t word, State& next) const {
  NgramNode node;
  NgramEntry entry = table_->unigram(word, node);
  float probability = entry.probability;
  int found = 1;  // words of the longest n-gram
  next.words[0] = word;
  next.backoffs[0] = entry.backoff;
  next.length = 1;
  for (int length = 2; length <= table_->order() && length - 2 < state.length && entry.goes_on; ++length) {
    const uint32_t before = state.words[length - 2];
    entry = table_->longer(length, before, node);
    if (entry.is_there) {
      probability = entry.probability;
      found = length;
    }
    if (length == table_->order()) break;
    next.words[length - 1] = before;
    next.backoffs[length - 1] = entry.is_there ? entry.backoff : 0;
    if (entry.is_there) next.length = length;
  }
  // The shortest context first: the order of KenLM's sum.
  for (int length = found; length <= state.length; ++length) probability += state.backoffs[length - 1];
  return probability;
}

float NgramModel::score(std::string_view sentence) const {
  const auto is_blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  State states[2] = {begin_, {}};
  int now = 0;
  float total = 0;
  const auto add = [&](uint32_t word) {
    total += score(states[now], word, states[1 - now]);
    now = 1 - now;
  };
  for (auto at = sentence.begin(); at != sentence.end();) {
    at = std::find_if_not(at, sentence.end(), is_blank);
    const auto end = std::find_if(at, sentence.end(), is_blank);
    if (end != at) add(table_->id_of(std::string_view(at, end)));
    at = end;
  }
  add(end_);
  return total;
}

}  // namespace espalier::curate
