#include "text/sentence_splitter.h"

#include <algorithm>
#include <array>
#include <string>

#include "text/internal/sentence_words.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::text {
namespace {

using internal::Abbreviation;

constexpr size_t kLongestWord = 24;  // bytes of a word that the lists may know

bool is_ascii_digit(char32_t code) { return code >= '0' && code <= '9'; }
bool is_ascii_upper(char32_t code) { return code >= 'A' && code <= 'Z'; }
bool is_ascii_lower(char32_t code) { return code >= 'a' && code <= 'z'; }
bool is_ascii_letter(char32_t code) { return is_ascii_upper(code) || is_ascii_lower(code); }
bool is_upper(char32_t code) {
  return category(code) == Category::kUppercase || category(code) == Category::kTitlecase;
}
bool is_lower(char32_t code) { return category(code) == Category::kLowercase; }

// What a character can do to the end of a sentence.
enum class Role : uint8_t { kPlain, kBlank, kPeriod, kStop, kEllipsis, kWideStop, kOther };

Role role_of_wide(char32_t code) {
  switch (code) {
    case 0x2026: return Role::kEllipsis;
    case 0x3002:  // ideographic full stop, and the wide forms of . ! ?
    case 0xFF01:
    case 0xFF0E:
    case 0xFF1F:
    case 0xFF61: return Role::kWideStop;
    case 0x203C:  // double marks
    case 0x2047:
    case 0x2048:
    case 0x2049:
    case 0x0589:  // Armenian, Arabic, Devanagari, Ethiopic, Khmer, Burmese
    case 0x061F:
    case 0x06D4:
    case 0x0964:
    case 0x0965:
    case 0x1362:
    case 0x17D4:
    case 0x104B: return Role::kStop;
    default: return is_white_space(code) ? Role::kBlank : Role::kPlain;
  }
}

// kOther: not ASCII, so it has to be decoded.
constexpr std::array<Role, 256> make_roles() {
  std::array<Role, 256> roles{};
  for (size_t byte = 128; byte < 256; ++byte) roles[byte] = Role::kOther;
  for (const char blank : {' ', '\t', '\n', '\v', '\f', '\r'}) roles[static_cast<uint8_t>(blank)] = Role::kBlank;
  roles['.'] = Role::kPeriod;
  roles['!'] = roles['?'] = Role::kStop;
  return roles;
}
constexpr std::array<Role, 256> kRoles = make_roles();

// What begins at `at`; a byte that begins no whole character is one of its own.
CodePoint code_in(std::string_view text, size_t at) {
  const auto byte = static_cast<uint8_t>(text[at]);
  if (byte < 0x80) return {byte, 1};
  const int length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
  if (byte < 0xC2 || byte > 0xF4 || at + static_cast<size_t>(length) > text.size()) return {kReplacement, 1};
  for (int more = 1; more < length; ++more)
    if ((static_cast<uint8_t>(text[at + static_cast<size_t>(more)]) & 0xC0) != 0x80) return {kReplacement, 1};
  const CodePoint found = decode_utf8(&text[at]);
  return found.code <= 0x10FFFF ? found : CodePoint{kReplacement, 1};
}

// Of one text, from left to right.
class SentenceCutter {
 public:
  SentenceCutter(std::string_view text, SentenceBlanks blanks, std::vector<std::string_view>& sentences)
      : text_(text), blanks_(blanks), sentences_(sentences), last_blanks_(text.size()) {}

  void cut() {
    size_t at = skip_blanks(0);
    if (blanks_ == SentenceBlanks::kDropped) begin_ = at;
    token_ = first_token_ = at;
    while ((at = end_of_words(at)) < text_.size()) at = pass_other(at);
    end_sentence(last_blanks_, text_.size());
  }

 private:
  struct Look {
    Role role;
    size_t num_bytes;
  };

  Role role_of_byte(size_t at) const { return kRoles[static_cast<uint8_t>(text_[at])]; }

  // Past plain ASCII and single blanks between it, which is most of a text.
  size_t end_of_words(const size_t first) {
    const char* at = text_.data() + first;
    const char* const end = text_.data() + text_.size();
    const auto is_plain = [](const char* byte) { return kRoles[static_cast<uint8_t>(*byte)] == Role::kPlain; };
    for (;;) {
      while (at < end && is_plain(at)) ++at;
      if (end - at < 2 || *at != ' ' || !is_plain(at + 1)) break;
      token_ = static_cast<size_t>(++at - text_.data());
    }
    return static_cast<size_t>(at - text_.data());
  }

  size_t pass_other(size_t at) {
    const auto [role, num_bytes] = look(at);
    if (role == Role::kPlain) return at + num_bytes;
    return role == Role::kBlank ? pass_blanks(at, false) : pass_stops(at);
  }

  CodePoint code_at(size_t at) const { return code_in(text_, at); }

  Look look(size_t at) const {
    const Role role = role_of_byte(at);
    if (role != Role::kOther) return {role, 1};
    const CodePoint code = code_at(at);
    return {role_of_wide(code.code), static_cast<size_t>(code.num_bytes)};
  }

  size_t skip_blanks(size_t at) const {
    while (at < text_.size()) {
      const auto [role, num_bytes] = look(at);
      if (role != Role::kBlank) break;
      at += num_bytes;
    }
    return at;
  }

  // Ends the sentence where blanks and what they part demand it. `stopped`: a stop before them ends it anyway. Returns
  // the place after the blanks.
  size_t pass_blanks(size_t at, bool stopped) {
    const size_t next = skip_blanks(at);
    if (next == text_.size()) {
      last_blanks_ = at;
      return next;
    }
    const size_t num_lines = lines_between(at, next);
    const bool item = num_lines > 0 && begins_item(next);
    if (stopped || num_lines > 1 || item) end_sentence(at, next);
    token_ = next;
    return next;
  }

  size_t lines_between(size_t at, size_t end) const {
    size_t count = 0;
    for (; at < end; ++at) {
      if (text_[at] == '\n' || (text_[at] == '\r' && (at + 1 == end || text_[at + 1] != '\n'))) ++count;
      if (text_[at] == '\f') count += 2;  // a new page
    }
    return count;
  }

  // "- ", "* ", "1. ", "(2) ", "a) " at the beginning of a line. A number with a period counts only as the first or
  // next of its list: a line may begin with the number that ends a sentence.
  bool begins_item(size_t at) {
    const CodePoint first = code_at(at);
    const auto blank_at = [&](size_t place) { return place < text_.size() && look(place).role == Role::kBlank; };
    switch (first.code) {
      case '-':
      case '*':
      case '+':
      case 0x2022:  // bullets
      case 0x2023:
      case 0x25AA:
      case 0x25CF:
      case 0x25E6:
      case 0x2013:  // dashes
      case 0x2014: return blank_at(at + static_cast<size_t>(first.num_bytes));
      default: break;
    }
    if (first.code == '(') ++at;
    size_t end = at;
    int64_t number = 0;
    while (end < text_.size() && end - at < 3 && is_ascii_digit(static_cast<uint8_t>(text_[end])))
      number = 10 * number + (text_[end++] - '0');
    const bool is_number = end > at;
    if (!is_number && end < text_.size() && is_ascii_letter(static_cast<uint8_t>(text_[end]))) ++end;
    if (end == at || !blank_at(end + 1)) return false;
    if (text_[end] == ')') return true;
    if (text_[end] != '.' || !is_number || first.code == '(') return false;
    const bool in_order = number == 1 || number == last_item_ + 1;
    if (in_order) last_item_ = number;
    return in_order;
  }

  // One or more stops and what closes after them.
  size_t pass_stops(const size_t first) {
    size_t at = first, num_periods = 0;
    bool stop = false, ellipsis = false, wide = false;
    for (; at < text_.size();) {
      const auto [role, num_bytes] = look(at);
      if (role == Role::kPlain || role == Role::kBlank) break;
      num_periods += role == Role::kPeriod;
      stop = stop || role == Role::kStop;
      ellipsis = ellipsis || role == Role::kEllipsis;
      wide = wide || role == Role::kWideStop;
      at += num_bytes;
    }
    const size_t after_stops = at;
    at = skip_closing(at);
    if (at == text_.size()) return at;
    if (wide) {
      end_sentence(at, skip_blanks(at));
      return token_ = begin_of_next_;
    }
    if (look(at).role != Role::kBlank) return at;
    Place place{first, at > after_stops, skip_blanks(at)};
    bool ends = true;  // as the text does
    if (place.next == text_.size()) return pass_blanks(at, ends);
    if (goes_on(code_at(place.next).code))
      ends = false;
    else if (stop)
      ends = ends_at_mark(place, after_stops - first == 1 && text_[first] == '!');
    else if (ellipsis || num_periods > 1)
      ends = !is_lower(first_code_of_next(place.next)) && !is_number(first_code_of_next(place.next));
    else
      ends = ends_at_period(place);
    return pass_blanks(at, ends);
  }

  // Quotes and brackets that close, marks of emphasis, numbers of notes ("[3]").
  size_t skip_closing(size_t at) const {
    while (at < text_.size()) {
      const CodePoint code = code_at(at);
      const Category kind = category(code.code);
      const bool closes = code.code == '"' || code.code == '\'' || code.code == '*' || code.code == '_' ||
                          code.code == '`' || kind == Category::kClose || kind == Category::kFinalQuote;
      const size_t after_note = code.code == '[' ? skip_note(at) : at;
      if (closes)
        at += static_cast<size_t>(code.num_bytes);
      else if (after_note > at)
        at = after_note;
      else
        break;
    }
    return at;
  }

  size_t skip_note(const size_t at) const {
    size_t end = at + 1;
    while (end < text_.size() && end - at <= 3 && is_ascii_digit(static_cast<uint8_t>(text_[end]))) ++end;
    return end > at + 1 && end < text_.size() && text_[end] == ']' ? end + 1 : at;
  }

  // A stop with a blank after it.
  struct Place {
    size_t stop;  // where it is
    bool closed;  // a quote or bracket closes after it
    size_t next;  // what comes after the blanks
  };

  // Past quotes and brackets that open.
  size_t skip_opening(size_t at) const {
    while (at < text_.size()) {
      const CodePoint code = code_at(at);
      const Category kind = category(code.code);
      if (code.code != '"' && code.code != '\'' && code.code != '*' && code.code != '_' && code.code != '`' &&
          code.code != 0xBF && code.code != 0xA1 && kind != Category::kOpen && kind != Category::kInitialQuote)
        break;
      at += static_cast<size_t>(code.num_bytes);
    }
    return at;
  }

  char32_t first_code_of_next(size_t next) const {
    const size_t at = skip_opening(next);
    return at < text_.size() ? code_at(at).code : U' ';
  }

  // Letters and apostrophes in lower case; empty if longer than any that the lists know.
  std::string next_word(size_t next) const {
    std::string word;
    for (size_t at = skip_opening(next); at < text_.size() && word.size() <= kLongestWord; ++at) {
      const auto byte = static_cast<uint8_t>(text_[at]);
      if (is_ascii_letter(byte) || (byte == '\'' && !word.empty()))
        word += static_cast<char>(is_ascii_upper(byte) ? byte + 32 : byte);
      else if (byte >= 0x80)
        return "";
      else
        break;
    }
    while (!word.empty() && word.back() == '\'') word.pop_back();
    return word.size() <= kLongestWord ? word : "";
  }

  bool next_begins_sentence(size_t next) const {
    return is_upper(first_code_of_next(next)) && internal::often_begins_sentence(next_word(next));
  }

  // The word before a stop, without what opens before it and without the parts before a dash or a slash.
  std::string_view word_before(size_t stop) const {
    const size_t begin = std::min(skip_opening(token_), stop);
    std::string_view word = text_.substr(begin, stop - begin);
    if (word.size() > 4 * kLongestWord) return word;
    const size_t part = word.find_last_of("-/([\"");
    return part == std::string_view::npos ? word : word.substr(part + 1);
  }

  // '!' and '?' end a sentence unless a small letter follows: "What?" he asked, and names: Yahoo! is.
  bool ends_at_mark(const Place& place, bool single_exclamation) const {
    if (!is_lower(first_code_of_next(place.next))) return true;
    if (place.closed) return false;
    const std::string_view word = word_before(place.stop);
    return !(single_exclamation && !word.empty() && is_ascii_upper(static_cast<uint8_t>(word[0])) &&
             token_ != first_token_);
  }

  bool ends_at_period(const Place& place) const {
    const char32_t next = first_code_of_next(place.next);

    const std::string_view word = word_before(place.stop);
    if (word.empty()) return !is_lower(next);
    if (is_ascii_digit(static_cast<uint8_t>(word[0]))) return ends_at_number(word, next);
    if (word.size() <= kLongestWord) {
      std::string lower(word);
      std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) {
        return is_ascii_upper(c) ? static_cast<char>(c + 32) : static_cast<char>(c);
      });
      if (word.size() == 1 && is_ascii_letter(static_cast<uint8_t>(word[0]))) return ends_at_letter(word, place, next);
      if (lower == "a.m" || lower == "p.m" || lower == "am" || lower == "pm")
        return is_upper(next) && !internal::belongs_to_time(next_word(place.next));
      Abbreviation kind = internal::abbreviation_of(lower);
      if (kind == Abbreviation::kNone && (is_dotted(lower) || has_no_vowel(word))) kind = Abbreviation::kMayEnd;
      if (kind != Abbreviation::kNone) return ends_at_abbreviation(kind, lower, place, next);
    }
    // People who write without capitals end sentences anyway.
    return !is_lower(next) || (!place.closed && is_small(word));
  }

  // What no sentence begins with: ". . ." is one ellipsis, and what closes belongs to what was opened.
  static bool goes_on(char32_t code) {
    return code == ',' || code == ';' || code == ':' || code == '.' || code == '!' || code == '?' || code == 0x2026 ||
           category(code) == Category::kClose || category(code) == Category::kFinalQuote;
  }

  // Three letters or more, all small.
  static bool is_small(std::string_view word) {
    size_t count = 0;
    for (size_t at = 0; at < word.size(); ++count) {
      const CodePoint code = code_in(word, at);
      if (!is_lower(code.code)) return false;
      at += static_cast<size_t>(code.num_bytes);
    }
    return count >= 3;
  }

  // Not the number of an item: "1. First".
  bool ends_at_number(std::string_view word, char32_t next) const {
    if (token_ == first_token_ && word.size() <= 3 && std::all_of(word.begin(), word.end(), is_ascii_digit))
      return false;
    return !is_lower(next);
  }

  // Initials: "J. Smith", "Plan B. The", "p. 5", "Roe v. Wade", "x. Then".
  bool ends_at_letter(std::string_view word, const Place& place, char32_t next) const {
    const char letter = word[0];
    if (is_ascii_upper(static_cast<uint8_t>(letter))) return next_begins_sentence(place.next);
    const bool leads =
        letter == 'v' || ((letter == 'p' || letter == 'c' || letter == 'n' || letter == 's') && is_number(next));
    return is_upper(next) && !leads;
  }

  bool ends_at_abbreviation(Abbreviation kind, const std::string& lower, const Place& place, char32_t next) const {
    switch (kind) {
      case Abbreviation::kNever: return false;
      case Abbreviation::kMayEnd: return next_begins_sentence(place.next);
      case Abbreviation::kNumbered:
        if (is_numeral(place.next, lower)) return false;
        [[fallthrough]];
      default: return !is_lower(next) && !is_number(next);
    }
  }

  // 3, IV, B; "No. I did" is not a number.
  bool is_numeral(size_t next, const std::string& before) const {
    const char32_t first = first_code_of_next(next);
    if (is_number(first) || first == '#') return true;
    const std::string word = next_word(next);
    if (!is_upper(first) || word.empty()) return false;
    if (word.size() == 1) return before != "no" && word != "a" && word != "i";
    return word.size() <= 5 && word.find_first_not_of("ivxlc") == std::string::npos;
  }

  // "ph.d", "u.s.s.r": one or two letters between periods.
  static bool is_dotted(std::string_view lower) {
    size_t letters = 0, periods = 0;
    for (const char c : lower) {
      if (c == '.') {
        if (letters == 0) return false;
        ++periods;
        letters = 0;
      } else if (!is_ascii_lower(static_cast<uint8_t>(c)) || ++letters > 2) {
        return false;
      }
    }
    return periods > 0 && letters > 0;
  }

  // "hrs", "Blvd", but not "XML".
  static bool has_no_vowel(std::string_view word) {
    bool any_lower = false;
    for (const char c : word) {
      if (!is_ascii_letter(static_cast<uint8_t>(c))) return false;
      if (std::string_view("aeiouyAEIOUY").find(c) != std::string_view::npos) return false;
      any_lower = any_lower || is_ascii_lower(static_cast<uint8_t>(c));
    }
    return any_lower && word.size() <= 4;
  }

  // `end` is the place after the sentence, `next` that after the blanks.
  void end_sentence(size_t end, size_t next) {
    if (blanks_ == SentenceBlanks::kKept) {
      if (next > begin_) sentences_.push_back(text_.substr(begin_, next - begin_));
    } else if (begin_ < end) {
      sentences_.push_back(text_.substr(begin_, end - begin_));
    }
    begin_ = begin_of_next_ = first_token_ = next;
  }

  const std::string_view text_;
  const SentenceBlanks blanks_;
  std::vector<std::string_view>& sentences_;
  size_t last_blanks_;        // those at the end of the text begin here
  size_t begin_ = 0;          // of the current sentence
  size_t first_token_ = 0;    // of it: where its blanks end
  size_t token_ = 0;          // where the current word begins
  size_t begin_of_next_ = 0;  // after the last sentence
  int64_t last_item_ = 0;     // of a numbered list
};

}  // namespace

void split_sentences(std::string_view text, SentenceBlanks blanks, std::vector<std::string_view>& sentences) {
  sentences.clear();
  SentenceCutter(text, blanks, sentences).cut();
}

}  // namespace espalier::text
