#include "text/internal/merge_learner.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/internal/byte_level.h"

namespace espalier::text::internal {

MergeLearner::MergeLearner(const std::vector<std::string>& special_tokens, int64_t min_frequency)
    : floor_(std::max<int64_t>(1, min_frequency)), pair_counts_(floor_) {
  for (const std::string& token : special_tokens) id_of(token);
  std::vector<std::pair<char32_t, int>> alphabet;
  for (int byte = 0; byte < 256; ++byte) alphabet.emplace_back(char_of_byte(static_cast<uint8_t>(byte)), byte);
  std::sort(alphabet.begin(), alphabet.end());
  for (const auto& [code, byte] : alphabet)
    byte_ids_[byte] = id_of(piece_of_bytes(std::string(1, static_cast<char>(byte))));
}

int32_t MergeLearner::id_of(const std::string& piece) {
  const auto [entry, is_new] = ids_.try_emplace(piece, static_cast<int32_t>(pieces_.size()));
  if (is_new) pieces_.push_back(piece);
  return entry->second;
}

void MergeLearner::reserve(int64_t num_words, int64_t num_bytes) {
  symbols_.reserve(static_cast<size_t>(num_bytes));
  begins_.reserve(static_cast<size_t>(num_words));
  lengths_.reserve(static_cast<size_t>(num_words));
  counts_.reserve(static_cast<size_t>(num_words));
}

int64_t MergeLearner::needed_bytes(int64_t num_words, int64_t num_bytes, int64_t min_frequency) {
  constexpr int64_t kPerWord = sizeof(uint64_t) + sizeof(uint32_t) + sizeof(int64_t);
  constexpr int64_t kPerByte = sizeof(int32_t);
  // Words of pairs, their counts and the candidates: 24 and 9 measured with random words merged to the end; with text
  // of people it is less.
  const int64_t per_byte_of_lists = min_frequency < 2 ? 24 : 10;
  return num_words * kPerWord + num_bytes * (kPerByte + per_byte_of_lists);
}

void MergeLearner::add_word(std::string_view bytes, int64_t count) {
  if (bytes.size() < 2) return;  // no pairs
  ESPALIER_CHECK(counts_.size() < UINT32_MAX && bytes.size() < UINT32_MAX);
  begins_.push_back(symbols_.size());
  lengths_.push_back(static_cast<uint32_t>(bytes.size()));
  counts_.push_back(count);
  for (const char byte : bytes) symbols_.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
}

void MergeLearner::learn(int64_t vocab_size, Progress& progress) {
  count_pairs();
  while (static_cast<int64_t>(pieces_.size()) < vocab_size && !queue_.empty()) {
    Candidate top = queue_.top();
    queue_.pop();
    const int64_t count = pair_counts_.count(top.pair);
    if (count < floor_) {
      take_words(top);
    } else if (count < top.count) {
      top.count = count;
      queue_.push(top);
    } else {
      const size_t num_pieces = pieces_.size();
      merge(top);
      progress.advance(static_cast<int64_t>(pieces_.size() - num_pieces));
    }
  }
}

// Before the first merge all symbols are bytes: there are 65,536 pairs at most.
void MergeLearner::count_pairs() {
  struct Found {
    int64_t count = 0;
    uint32_t num_words = 0, last_word = UINT32_MAX;
    WordList words;
  };
  std::vector<Found> found(65536);
  std::vector<uint8_t> byte_of_id(pieces_.size());
  for (int byte = 0; byte < 256; ++byte) byte_of_id[static_cast<size_t>(byte_ids_[byte])] = static_cast<uint8_t>(byte);
  const auto for_each_pair = [&](auto&& use) {
    for (uint32_t word = 0; word < counts_.size(); ++word) {
      const int32_t* const symbols = &symbols_[begins_[word]];
      for (uint32_t at = 0; at + 1 < lengths_[word]; ++at)
        use(found[static_cast<size_t>(byte_of_id[static_cast<size_t>(symbols[at])]) << 8 |
                  byte_of_id[static_cast<size_t>(symbols[at + 1])]],
            word);
    }
  };
  for_each_pair([this](Found& pair, uint32_t word) {
    pair.count += counts_[word];
    if (pair.last_word != word) ++pair.num_words;
    pair.last_word = word;
  });
  for_each_pair([](Found& pair, uint32_t word) {
    if (pair.words.empty()) pair.words.reserve(pair.num_words);
    if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
  });
  for (size_t bytes = 0; bytes < found.size(); ++bytes) {
    if (found[bytes].count >= floor_) {
      const SymbolPair pair = make_pair_of(byte_ids_[bytes >> 8], byte_ids_[bytes & 255]);
      pair_counts_.set(pair, found[bytes].count);
      push(pair, found[bytes].count, found[bytes].words);
    }
    WordList().swap(found[bytes].words);
  }
}

// Most pairs are rare: one word needs no list.
void MergeLearner::push(SymbolPair pair, int64_t count, const WordList& words) {
  if (words.size() == 1) {
    queue_.push({count, pair, words[0], true});
    return;
  }
  if (free_lists_.empty()) {
    ESPALIER_CHECK(lists_.size() < UINT32_MAX);
    free_lists_.push_back(static_cast<uint32_t>(lists_.size()));
    lists_.emplace_back();
  }
  const uint32_t list = free_lists_.back();
  free_lists_.pop_back();
  lists_[list].assign(words.begin(), words.end());
  queue_.push({count, pair, list, false});
}

MergeLearner::WordList MergeLearner::take_words(const Candidate& candidate) {
  if (candidate.is_only_word) return {candidate.words};
  free_lists_.push_back(candidate.words);
  return std::exchange(lists_[candidate.words], {});
}

void MergeLearner::merge(const Candidate& top) {
  const int32_t merged =
      id_of(pieces_[static_cast<size_t>(first_of(top.pair))] + pieces_[static_cast<size_t>(second_of(top.pair))]);
  merges_.emplace_back(first_of(top.pair), second_of(top.pair));
  pair_counts_.subtract(top.pair, top.count);  // so that it is forgotten
  left_.resize(pieces_.size());
  right_.resize(pieces_.size());
  for (const uint32_t word : take_words(top)) merge_in_word(word, top.pair, merged);
  apply_changes(top.pair, merged);
}

void MergeLearner::Changes::note(int32_t neighbour, int64_t count, uint32_t word) {
  Change& change = (*this)[neighbour];
  if (change.count == 0) touched.push_back(neighbour);
  change.count += count;
  if (change.words.empty() || change.words.back() != word) change.words.push_back(word);
}

// From left to right, so that of three equal symbols the first two are merged.
void MergeLearner::merge_in_word(uint32_t word, SymbolPair pair, int32_t merged) {
  int32_t* const symbols = &symbols_[begins_[word]];
  const uint32_t length = lengths_[word];
  const int32_t first = first_of(pair), second = second_of(pair);
  uint32_t write = 0;
  for (uint32_t read = 0; read < length; ++read, ++write) {
    symbols[write] = symbols[read];
    if (symbols[read] != first || read + 1 == length || symbols[read + 1] != second) continue;
    symbols[write] = merged;
    ++read;
    if (write > 0) left_.note(symbols[write - 1], counts_[word], word);
    if (read + 1 < length) right_.note(symbols[read + 1], counts_[word], word);
  }
  lengths_[word] = write;
}

void MergeLearner::apply_changes(SymbolPair pair, int32_t merged) {
  const auto with_left = [merged](int32_t neighbour) { return make_pair_of(neighbour, merged); };
  const auto with_right = [merged](int32_t neighbour) { return make_pair_of(merged, neighbour); };
  const auto count_new = [this](Changes& changes, const auto& new_pair) {
    for (const int32_t neighbour : changes.touched) {
      if (changes[neighbour].count >= floor_) pair_counts_.set(new_pair(neighbour), changes[neighbour].count);
    }
  };
  count_new(left_, with_left);
  count_new(right_, with_right);
  // A pair that was new a moment ago may be among those that vanish: "abab" becomes (ab, a) b, then (ab, ab).
  for (const int32_t neighbour : left_.touched)
    pair_counts_.subtract(make_pair_of(neighbour, first_of(pair)), left_[neighbour].count);
  for (const int32_t neighbour : right_.touched)
    pair_counts_.subtract(make_pair_of(second_of(pair), neighbour), right_[neighbour].count);
  const auto push_new = [this](Changes& changes, const auto& new_pair) {
    for (const int32_t neighbour : changes.touched) {
      Change& change = changes[neighbour];
      const int64_t count = change.count >= floor_ ? pair_counts_.count(new_pair(neighbour)) : 0;
      if (count >= floor_) push(new_pair(neighbour), count, change.words);
      change.count = 0;
      change.words.clear();
    }
    changes.touched.clear();
  };
  push_new(left_, with_left);
  push_new(right_, with_right);
}

}  // namespace espalier::text::internal
