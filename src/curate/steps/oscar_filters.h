// What BigScience measured of OSCAR's documents before it trained BLOOM, to the bit, and the thresholds of each
// language.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace espalier::curate {

// Sorted, apart.
const std::vector<std::pair<char32_t, char32_t>>& special_character_ranges();
bool is_special_character(char32_t code);

using WordSet = std::unordered_set<std::string>;

// What is counted besides single words, against the lists of stop words and flagged words.
enum class WordPairs { kNone, kBlank, kJoined };

struct OscarParameters {
  bool removes_links = false, removes_long_words = false;
  int64_t longest_word = 0;      // in characters
  bool splits_by_model = false;  // words are the pieces of a SentencePiece model
  int64_t least_words = 0, most_words = 0;
  int64_t character_window = 0;
  double most_character_repetition = 0;
  int64_t word_window = 0;
  double most_word_repetition = 0, most_special = 0, least_stop_words = 0, most_flagged_words = 0;
  double least_language_score = 0, most_perplexity = 0;
  WordPairs pairs = WordPairs::kNone;
};

// Null where the language has no row of its own; "default" has one.
const OscarParameters* find_oscar_parameters(std::string_view language);
std::vector<std::string> oscar_languages();

// The blanks of other scripts, the object replacement character and U+0084 as plain blanks.
std::string oscar_plain_blanks(std::string_view text);
// The text as the filters see it, and as it stays.
std::string oscar_modified(std::string_view text, const OscarParameters& parameters);
// Without special characters at both ends, none of them empty.
std::vector<std::string> oscar_words(std::string_view text, bool lower_case);
// The same where a model cut the text into words.
std::vector<std::string> oscar_words_of(const std::vector<std::string>& pieces, bool lower_case);

double character_repetition(std::string_view text, int64_t window);
double word_repetition(const std::vector<std::string>& lower_words, int64_t window);
double special_character_share(std::string_view text);
double listed_word_share(const std::vector<std::string>& lower_words, const WordSet& list, WordPairs pairs);

}  // namespace espalier::curate
