// The text format of n-gram models, as ARPA's readers know it from SRILM and lmplz:
//
//   \data\                 after blank lines and lines that begin with #
//   ngram 1=3
//   \1-grams:
//   -1.2<TAB>word<TAB>-0.3 log10 of the probability, the words, log10 of the backoff, which may be missing
//   \end\                  nothing but blank lines follows
#include <charconv>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/progress.h"
#include "curate/lm/ngram_table.h"
#include "data/input_stream.h"

namespace espalier::curate {
namespace {

// The n-grams of one length by a hash of their words; open addressing, at most two thirds full.
class Grams {
 public:
  struct Gram {
    uint64_t key = 0;  // 0: free
    float probability = 0, backoff = 0;
  };
  explicit Grams(uint64_t count) : grams_(count + count / 2 + 2) {}

  const Gram* find(uint64_t key) const {
    const Gram& gram = grams_[place_of(key)];
    return gram.key == 0 ? nullptr : &gram;
  }
  // False if it is there already.
  bool insert(const Gram& gram) {
    Gram& place = grams_[place_of(gram.key)];
    if (place.key != 0) return false;
    place = gram;
    return true;
  }

 private:
  size_t place_of(uint64_t key) const {
    size_t at = key % grams_.size();
    while (grams_[at].key != 0 && grams_[at].key != key) at = at + 1 == grams_.size() ? 0 : at + 1;
    return at;
  }
  std::vector<Gram> grams_;
};

// Of the n-gram that begins with one more word. Never 0, which stands for a free place.
uint64_t longer_key(uint64_t key, uint32_t word) {
  uint64_t mixed = (key ^ (uint64_t{word} + 1)) * 0x9E3779B97F4A7C15ULL;
  mixed ^= mixed >> 29;
  mixed *= 0xBF58476D1CE4E5B9ULL;
  mixed ^= mixed >> 32;
  return mixed == 0 ? 1 : mixed;
}
uint64_t first_key(uint32_t word) { return longer_key(0x243F6A8885A308D3ULL, word); }

struct WordHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

class ArpaTable : public NgramTable {
 public:
  int order() const override { return static_cast<int>(longer_.size()) + 1; }
  uint32_t id_of(std::string_view word) const override {
    const auto found = ids_.find(word);
    return found == ids_.end() ? 0 : found->second;
  }
  NgramEntry unigram(uint32_t word, NgramNode& node) const override {
    node.first = first_key(word);
    const Grams::Gram& gram = unigrams_[word];
    return {true, order() > 1, gram.probability, gram.backoff};
  }
  NgramEntry longer(int length, uint32_t word, NgramNode& node) const override {
    node.first = longer_key(node.first, word);
    const Grams::Gram* const gram = longer_[static_cast<size_t>(length) - 2].find(node.first);
    // A pruned model may have "a b c" without "b c".
    if (gram == nullptr) return {false, has_gaps_, 0, 0};
    return {true, true, gram->probability, gram->backoff};
  }
  std::string description() const override { return concat(order(), "-grams of an ARPA file"); }

 private:
  friend class ArpaReader;
  std::unordered_map<std::string, uint32_t, WordHash, std::equal_to<>> ids_;
  std::vector<Grams::Gram> unigrams_;  // by id
  std::vector<Grams> longer_;          // of 2 words and more
  bool has_gaps_ = false;
};

bool is_arpa_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\v\f") == std::string_view::npos; }

class ArpaReader {
 public:
  explicit ArpaReader(const std::string& file)
      : file_(file),
        input_(data::open_input(file)),
        progress_("read " + file, file_size_bytes(file), Progress::Unit::kBytes) {}

  std::unique_ptr<NgramTable> read() {
    read_counts();
    table_ = std::make_unique<ArpaTable>();
    table_->unigrams_.resize(1);
    table_->unigrams_[0].probability = -100;  // of the unknown word, where the model has none: as KenLM
    for (size_t length = 1; length <= counts_.size(); ++length) read_grams(static_cast<int>(length));
    expect("\\end\\");
    while (next_line())
      if (!is_blank(line_)) fail("expected nothing after \\end\\, found '", shown(), "'");
    progress_.finish();
    return std::move(table_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw UserError(concat("'", file_, "', line ", line_number_, ": ", parts...), ExitCode::kBadData);
  }
  std::string shown() const { return std::string(line_.substr(0, 80)); }

  // The next line into line_, without its end. False at the end of the file.
  bool next_line() {
    while (true) {
      const size_t end = buffer_.find('\n', at_);
      if (end != std::string::npos || (at_ended_ && at_ < buffer_.size())) {
        const size_t stop = end == std::string::npos ? buffer_.size() : end;
        line_ = std::string_view(buffer_).substr(at_, stop - at_);
        at_ = stop + (end != std::string::npos);
        ++line_number_;
        return true;
      }
      if (at_ended_) return false;
      fill();
    }
  }
  void fill() {
    constexpr size_t kBytes = size_t{1} << 20;
    buffer_.erase(0, at_);
    at_ = 0;
    const size_t before = buffer_.size();
    if (before > 64 * kBytes) fail("the line has more than 64 MiB; this is not an ARPA file");
    buffer_.resize(before + kBytes);
    const size_t size = input_->read(buffer_.data() + before, kBytes);
    buffer_.resize(before + size);
    at_ended_ = size == 0;
    progress_.advance(input_->consumed_bytes() - told_);
    told_ = input_->consumed_bytes();
  }

  void expect(const std::string& header) {
    do {
      if (!next_line()) fail("expected ", header, ", the file ends");
    } while (is_blank(line_));
    while (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
    if (line_ != header) fail("expected ", header, ", found '", shown(), "'");
  }

  void read_counts() {
    do {
      if (!next_line()) fail("no \\data\\: neither an ARPA file nor a binary file of KenLM");
    } while (is_blank(line_) || line_.starts_with('#'));
    while (!line_.empty() && line_.back() == '\r') line_.remove_suffix(1);
    if (line_ != "\\data\\") fail("neither an ARPA file, which begins with \\data\\, nor a binary file of KenLM");
    while (next_line() && !is_blank(line_)) {
      std::string_view left = line_;
      uint64_t length = 0, count = 0;
      if (!take(left, "ngram ") || !take(left, length) || !take(left, "=") || !take(left, count) || !is_blank(left) ||
          length != counts_.size() + 1)
        fail("expected 'ngram ", counts_.size() + 1, "=COUNT', found '", shown(), "'");
      counts_.push_back(count);
      // An n-gram has six bytes and more.
      if (count > (uint64_t{1} << 40)) fail(count, " n-grams are more than can be read");
    }
    if (counts_.empty()) fail("\\data\\ without counts of n-grams");
    if (counts_.size() > kMostNgramWords)
      fail("n-grams of ", counts_.size(), " words; at most ", kMostNgramWords, " are read");
  }
  static bool take(std::string_view& left, std::string_view word) {
    if (!left.starts_with(word)) return false;
    left.remove_prefix(word.size());
    return true;
  }
  static bool take(std::string_view& left, uint64_t& number) {
    while (!left.empty() && left.front() == ' ') left.remove_prefix(1);
    const auto [end, error] = std::from_chars(left.data(), left.data() + left.size(), number);
    if (error != std::errc()) return false;
    left.remove_prefix(static_cast<size_t>(end - left.data()));
    return true;
  }

  // The next word of the line; empty at its end.
  std::string_view next_word() {
    while (!line_.empty() && is_arpa_blank(line_.front())) line_.remove_prefix(1);
    size_t size = 0;
    while (size < line_.size() && !is_arpa_blank(line_[size])) ++size;
    const std::string_view word = line_.substr(0, size);
    line_.remove_prefix(size);
    return word;
  }
  float number(std::string_view word, const char* what) const {
    float value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size() || std::isnan(value))
      fail("expected a ", what, ", found '", std::string(word.substr(0, 80)), "'");
    return value;
  }

  void read_grams(int length) {
    expect(concat("\\", length, "-grams:"));
    const uint64_t count = counts_[static_cast<size_t>(length) - 1];
    // The header may be wrong: where it asks for much, the table grows with the actual content.
    if (length > 1) table_->longer_.emplace_back(checked_count(count));
    for (uint64_t index = 0; index < count; ++index) {
      if (!next_line() || is_blank(line_) || line_.starts_with('\\'))
        fail("expected ", format_count(static_cast<int64_t>(count)), " ", length, "-grams as the header has it, found ",
             format_count(static_cast<int64_t>(index)));
      read_gram(length);
    }
  }
  uint64_t checked_count(uint64_t count) const {
    // The shortest line has 7 bytes ("-1\ta b\n"), and models compress by a factor of 5 or so.
    const auto most = static_cast<uint64_t>(file_size_bytes(file_)) * 50;
    if (count > most) fail("the header promises ", count, " n-grams, more than the file can hold");
    return count;
  }

  void read_gram(int length) {
    Grams::Gram gram;
    gram.probability = number(next_word(), "log10 probability");
    if (gram.probability > 0) fail("the log10 probability ", gram.probability, " is above 0");
    uint32_t ids[kMostNgramWords] = {};
    std::string_view words[kMostNgramWords];
    for (int at = 0; at < length; ++at) {
      words[at] = next_word();
      if (words[at].empty()) fail("expected ", length, " words, found ", at);
    }
    const std::string_view backoff = next_word();
    if (!backoff.empty()) gram.backoff = number(backoff, "log10 backoff");
    if (std::isinf(gram.backoff)) fail("the log10 backoff is infinite");
    if (length == static_cast<int>(counts_.size()) && gram.backoff != 0)
      fail("a backoff of ", gram.backoff, " for an n-gram of the greatest length");
    if (!is_blank(line_)) fail("more than ", length, " words: '", shown(), "'");
    if (length == 1) return add_unigram(words[0], gram);
    for (int at = 0; at < length; ++at) {
      ids[at] = table_->id_of(words[at]);
      if (ids[at] == 0 && !is_unknown(words[at])) fail("'", std::string(words[at]), "' is not among the 1-grams");
    }
    add_longer(length, ids, gram);
  }
  static bool is_unknown(std::string_view word) { return word == "<unk>" || word == "<UNK>"; }

  void add_unigram(std::string_view word, const Grams::Gram& gram) {
    if (is_unknown(word)) {
      table_->unigrams_[0] = gram;
      return;
    }
    const auto id = static_cast<uint32_t>(table_->unigrams_.size());
    if (!table_->ids_.emplace(std::string(word), id).second) fail("'", std::string(word), "' occurs twice");
    table_->unigrams_.push_back(gram);
  }

  void add_longer(int length, const uint32_t* ids, Grams::Gram gram) {
    uint64_t key = first_key(ids[length - 1]), shorter = 0;
    for (int at = length - 2; at >= 0; --at) {
      shorter = key;
      key = longer_key(key, ids[at]);
    }
    gram.key = key;
    if (!table_->longer_.back().insert(gram)) fail("the ", length, "-gram occurs twice");
    if (length == 2) return;
    const Grams& below = table_->longer_[static_cast<size_t>(length) - 3];
    if (below.find(shorter) == nullptr) table_->has_gaps_ = true;
    uint64_t context = first_key(ids[length - 2]);
    for (int at = length - 3; at >= 0; --at) context = longer_key(context, ids[at]);
    if (below.find(context) == nullptr)
      fail("the first ", length - 1, " words of a ", length, "-gram are not a ", length - 1, "-gram of the model");
  }

  std::string file_;
  std::unique_ptr<data::InputStream> input_;
  Progress progress_;
  std::string buffer_;
  size_t at_ = 0;
  bool at_ended_ = false;
  int64_t told_ = 0, line_number_ = 0;
  std::string_view line_;
  std::vector<uint64_t> counts_;
  std::unique_ptr<ArpaTable> table_;
};

}  // namespace

std::unique_ptr<NgramTable> read_arpa(const std::string& file) { return ArpaReader(file).read(); }

}  // namespace espalier::curate
