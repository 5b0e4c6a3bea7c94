// Texts of evaluations in training data: finds word n-grams that occur in both, and cuts out the text around them.
//
// What filter_ngrams.py of the OpenWebText pipeline does, to the last place (use: counts of documents first, then the
// cuts of each document). Words are runs of \w in the lower-cased text, as Python has both. Of a task's text with fewer
// than `least_words` words nothing is taken, of one with fewer than `most_words` all words together, else every run of
// `most_words`. A document's text is searched from left to right, at each word for `most_words` words, then for the
// other lengths from short to long; the lengths below `most_words` also within its last words; a text with fewer words
// than that is never searched.
//
// Unlike the original, places are those of the text itself where lower-casing changes its length.
// Cost: O(words x lengths) hashes a text. Memory: the n-grams of the tasks.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace espalier::curate {

// Lower-cased words and where each starts, in characters.
struct WordsOfText {
  std::vector<std::string> words;
  std::vector<int64_t> starts;
};
WordsOfText contamination_words(std::u32string_view text);

struct ContaminationSetting {
  int64_t most_words = 13, least_words = 8;
  int64_t least_characters = 200;   // a piece stays only if it is longer
  int64_t margin_characters = 200;  // cut on each side, and on to the end of a sentence
  int64_t most_documents = 10;      // n-grams in as many documents are common phrases, and stay
};

class Contamination {
 public:
  explicit Contamination(const ContaminationSetting& setting) : setting_(setting) {}

  void add_task_text(std::string_view text);
  size_t num_ngrams() const { return ngrams_.size(); }
  std::map<int64_t, int64_t> ngrams_by_length() const;

  // The n-grams in a text, each once: what is counted, in how many documents. Any thread.
  std::vector<uint32_t> find(std::string_view text) const;
  // Drops those that are in too many documents. After that, only cut() may be called.
  void keep_rare(std::span<const int64_t> documents_of_ngram);

  // What is left of a text, in order; the text itself where nothing was found. Any thread.
  std::vector<std::string> cut(std::string_view text) const;

 private:
  struct Ngram {
    std::string words;  // joined by blanks
    int64_t length = 0, characters = 0;
  };
  struct Match {
    uint32_t ngram = 0;
    int64_t start = 0;  // in characters
  };

  void insert(const std::vector<std::string>& words, size_t first, size_t count);
  bool may_contain(std::string_view text) const;  // false for certain, true perhaps
  bool find_first(const WordsOfText& text, Match& match) const;
  bool is_at(const std::vector<uint64_t>& hashes, const WordsOfText& text, size_t first, int64_t length,
             Match& match) const;

  ContaminationSetting setting_;
  std::vector<Ngram> ngrams_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> by_hash_;
  std::unordered_set<uint64_t> first_words_;
  std::map<int64_t, int64_t> lengths_;  // how many of each
};

}  // namespace espalier::curate
