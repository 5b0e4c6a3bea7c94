#include "curate/contamination.h"

#include <algorithm>
#include <deque>

#include "base/hash.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::curate {
namespace {

// \w of Python's re: letters, numbers of all kinds, the underscore.
bool is_python_word(char32_t code) {
  if (code < 0x80)
    return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') || (code >= '0' && code <= '9') || code == '_';
  return text::is_letter(code) || text::is_number(code);
}

constexpr char32_t kDottedCapitalI = 0x130, kUpperSigma = 0x3A3;
constexpr std::string_view kSigmaAtEnd = "\xCF\x82";

// next(code): false at the end. Calls use(word in lower case, where it starts in characters) for each word.
template <class Next, class Use>
void each_word(Next next, Use use) {
  std::string word;
  int64_t start = 0, at = 0;
  bool ends_in_capital_sigma = false;  // not alone
  const auto finish = [&] {
    if (word.empty()) return;
    if (ends_in_capital_sigma) word.replace(word.size() - kSigmaAtEnd.size(), kSigmaAtEnd.size(), kSigmaAtEnd);
    use(word, start);
    word.clear();
    ends_in_capital_sigma = false;
  };
  for (char32_t code = 0; next(code); ++at) {
    if (!is_python_word(code)) {
      finish();
      continue;
    }
    if (word.empty()) start = at;
    ends_in_capital_sigma = code == kUpperSigma && !word.empty();
    if (code < 0x80) {
      word += static_cast<char>(code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code);
    } else if (code == kDottedCapitalI) {  // becomes an i and a mark, which ends the word
      word += 'i';
      finish();
    } else {
      text::append_utf8(text::lowercase_of(code), word);
    }
  }
  finish();
}

uint64_t hash_of_words(const std::vector<uint64_t>& hashes, size_t first, int64_t count) {
  return hash64(&hashes[first], static_cast<size_t>(count) * sizeof(uint64_t));
}

std::vector<uint64_t> hashes_of(const std::vector<std::string>& words) {
  std::vector<uint64_t> hashes;
  hashes.reserve(words.size());
  for (const std::string& word : words) hashes.push_back(hash64(word));
  return hashes;
}

bool ends_sentence(char32_t code) { return code == '.' || code == '!' || code == '?'; }

std::string to_utf8(std::u32string_view text) {
  std::string bytes;
  for (const char32_t code : text) text::append_utf8(code, bytes);
  return bytes;
}

}  // namespace

WordsOfText contamination_words(std::u32string_view text) {
  WordsOfText result;
  size_t at = 0;
  each_word(
      [&](char32_t& code) {
        if (at == text.size()) return false;
        code = text[at++];
        return true;
      },
      [&](const std::string& word, int64_t start) {
        result.words.push_back(word);
        result.starts.push_back(start);
      });
  return result;
}

void Contamination::insert(const std::vector<std::string>& words, size_t first, size_t count) {
  Ngram ngram;
  for (size_t word = first; word < first + count; ++word) {
    if (word > first) ngram.words += ' ';
    ngram.words += words[word];
  }
  const std::vector<uint64_t> hashes = hashes_of(words);
  std::vector<uint32_t>& same = by_hash_[hash_of_words(hashes, first, static_cast<int64_t>(count))];
  for (const uint32_t other : same)
    if (ngrams_[other].words == ngram.words) return;
  ngram.length = static_cast<int64_t>(count);
  ngram.characters = static_cast<int64_t>(text::to_utf32(ngram.words).size());
  same.push_back(static_cast<uint32_t>(ngrams_.size()));
  first_words_.insert(hashes[first]);
  ++lengths_[ngram.length];
  ngrams_.push_back(std::move(ngram));
}

void Contamination::add_task_text(std::string_view text) {
  const std::vector<std::string> words = contamination_words(text::to_utf32(text)).words;
  const auto count = static_cast<int64_t>(words.size());
  if (count < setting_.least_words) return;
  if (count < setting_.most_words) insert(words, 0, words.size());
  for (int64_t first = 0; first + setting_.most_words <= count; ++first)
    insert(words, static_cast<size_t>(first), static_cast<size_t>(setting_.most_words));
}

std::map<int64_t, int64_t> Contamination::ngrams_by_length() const { return lengths_; }

void Contamination::keep_rare(std::span<const int64_t> documents_of_ngram) {
  by_hash_.clear();
  first_words_.clear();
  lengths_.clear();
  const std::vector<Ngram> all = std::move(ngrams_);
  ngrams_.clear();
  for (size_t index = 0; index < all.size(); ++index) {
    if (documents_of_ngram[index] >= setting_.most_documents) continue;
    const Ngram& ngram = all[index];
    std::vector<std::string> words;
    for (size_t begin = 0; begin <= ngram.words.size();) {
      const size_t end = std::min(ngram.words.find(' ', begin), ngram.words.size());
      words.push_back(ngram.words.substr(begin, end - begin));
      begin = end + 1;
    }
    insert(words, 0, words.size());
  }
}

bool Contamination::is_at(const std::vector<uint64_t>& hashes, const WordsOfText& text, size_t first, int64_t length,
                          Match& match) const {
  const auto found = by_hash_.find(hash_of_words(hashes, first, length));
  if (found == by_hash_.end()) return false;
  std::string words;
  for (size_t word = first; word < first + static_cast<size_t>(length); ++word) {
    if (word > first) words += ' ';
    words += text.words[word];
  }
  for (const uint32_t ngram : found->second) {
    if (ngrams_[ngram].words != words) continue;
    match = {ngram, text.starts[first]};
    return true;
  }
  return false;
}

bool Contamination::find_first(const WordsOfText& text, Match& match) const {
  const auto count = static_cast<int64_t>(text.words.size());
  const std::vector<uint64_t> hashes = hashes_of(text.words);
  for (int64_t at = 0; at + setting_.most_words <= count; ++at) {
    const auto first = static_cast<size_t>(at);
    if (!first_words_.contains(hashes[first])) continue;
    if (is_at(hashes, text, first, setting_.most_words, match)) return true;
    for (const auto& [length, unused] : lengths_)
      if (length != setting_.most_words && is_at(hashes, text, first, length, match)) return true;
  }
  if (count <= setting_.most_words) return false;
  for (const auto& [length, unused] : lengths_) {
    if (length == setting_.most_words) continue;
    for (int64_t at = count - setting_.most_words; at + length <= count; ++at) {
      const auto first = static_cast<size_t>(at);
      if (first_words_.contains(hashes[first]) && is_at(hashes, text, first, length, match)) return true;
    }
  }
  return false;
}

// What find_first() looks for, by hashes alone and without the words: most texts have none of it.
bool Contamination::may_contain(std::string_view text) const {
  thread_local std::vector<uint64_t> hashes;
  hashes.clear();
  const char *at = text.data(), *const end = at + text.size();
  each_word(
      [&](char32_t& code) {
        if (at == end) return false;
        const text::CodePoint point = text::decode_utf8(at);
        at += point.num_bytes;
        code = point.code;
        return true;
      },
      [&](const std::string& word, int64_t) { hashes.push_back(hash64(word)); });
  for (size_t first = 0; first < hashes.size(); ++first) {
    if (!first_words_.contains(hashes[first])) continue;
    for (const auto& [length, unused] : lengths_)
      if (first + static_cast<size_t>(length) <= hashes.size() &&
          by_hash_.contains(hash_of_words(hashes, first, length)))
        return true;
  }
  return false;
}

std::vector<uint32_t> Contamination::find(std::string_view text) const {
  std::vector<uint32_t> found;
  if (!may_contain(text)) return found;
  const std::u32string whole = text::to_utf32(text);
  std::u32string_view rest = whole;
  Match match;
  while (find_first(contamination_words(rest), match)) {
    found.push_back(match.ngram);
    const auto behind = static_cast<size_t>(match.start + ngrams_[match.ngram].characters + 1);
    if (behind >= rest.size()) break;
    rest.remove_prefix(behind);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

std::vector<std::string> Contamination::cut(std::string_view text) const {
  if (!may_contain(text)) return {std::string(text)};
  std::vector<std::string> pieces;
  const std::u32string whole = text::to_utf32(text);
  std::u32string_view rest = whole;
  const auto keep = [&](std::u32string_view piece) {
    return static_cast<int64_t>(piece.size()) > setting_.least_characters;
  };
  for (;;) {
    Match match;
    if (!find_first(contamination_words(rest), match)) {
      pieces.push_back(to_utf8(rest));
      return pieces;
    }
    const auto size = static_cast<int64_t>(rest.size());
    int64_t left = match.start - setting_.margin_characters;
    while (left > 0 && !ends_sentence(rest[static_cast<size_t>(left)])) --left;
    if (left > 0 && keep(rest.substr(0, static_cast<size_t>(left + 1))))
      pieces.push_back(to_utf8(rest.substr(0, static_cast<size_t>(left + 1))));
    int64_t right = match.start + ngrams_[match.ngram].characters + setting_.margin_characters;
    while (right < size && !ends_sentence(rest[static_cast<size_t>(right)])) ++right;
    if (right + 1 >= size) return pieces;
    rest.remove_prefix(static_cast<size_t>(right + 1));
    if (!keep(rest)) return pieces;
  }
}

}  // namespace espalier::curate
