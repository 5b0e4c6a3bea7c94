#include "data/json_record.h"

#include <cstring>

#include "base/error.h"
#include "base/format.h"

namespace espalier::data {

// Eight bytes at a time: a byte of `found` is not zero where one of the three is (Hacker's Delight, 6-1); a false hit
// can only be above a true one, and only the lowest is looked at.
const char* find_json_special(const char* at, const char* end) {
  constexpr uint64_t kOnes = 0x0101010101010101u, kHighs = 0x8080808080808080u;
  const auto zero_bytes = [](uint64_t word) { return (word - kOnes) & ~word; };
  for (; end - at >= 8; at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    const uint64_t below_blank = (word - kOnes * 0x20) & ~word;
    const uint64_t found = (zero_bytes(word ^ kOnes * '"') | zero_bytes(word ^ kOnes * '\\') | below_blank) & kHighs;
    if (found != 0) return at + (__builtin_ctzll(found) >> 3);
  }
  for (; at < end; ++at)
    if (*at == '"' || *at == '\\' || static_cast<unsigned char>(*at) < 0x20) return at;
  return end;
}

namespace {

int hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

uint32_t hex_value(const char* four_digits) {
  uint32_t value = 0;
  for (int digit = 0; digit < 4; ++digit) value = value * 16 + static_cast<uint32_t>(hex_digit(four_digits[digit]));
  return value;
}

bool is_high_surrogate(uint32_t unit) { return unit >= 0xd800 && unit <= 0xdbff; }
bool is_low_surrogate(uint32_t unit) { return unit >= 0xdc00 && unit <= 0xdfff; }

void append_utf8(uint32_t character, std::string& text) {
  const auto put = [&text](uint32_t byte) { text += static_cast<char>(byte); };
  if (character < 0x80) {
    put(character);
  } else if (character < 0x800) {
    put(0xc0 | character >> 6), put(0x80 | (character & 0x3f));
  } else if (character < 0x10000) {
    put(0xe0 | character >> 12), put(0x80 | (character >> 6 & 0x3f)), put(0x80 | (character & 0x3f));
  } else {
    put(0xf0 | character >> 18), put(0x80 | (character >> 12 & 0x3f)), put(0x80 | (character >> 6 & 0x3f));
    put(0x80 | (character & 0x3f));
  }
}

struct Decoded {
  int64_t num_lone_surrogates = 0;
  uint32_t first_lone_surrogate = 0;
};

// Appends the character of the \u escape whose digits are at `at`, and its other half if that follows. Returns where
// the escape ends.
const char* decode_unicode_escape(const char* at, const char* end, std::string& text, Decoded& result) {
  uint32_t character = hex_value(at);
  at += 4;
  if (is_high_surrogate(character) && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
    const uint32_t low = hex_value(at + 2);
    if (is_low_surrogate(low)) {
      character = 0x10000 + ((character - 0xd800) << 10) + (low - 0xdc00);
      at += 6;
    }
  }
  if (is_high_surrogate(character) || is_low_surrogate(character)) {
    if (result.num_lone_surrogates++ == 0) result.first_lone_surrogate = character;
    character = 0xfffd;
  }
  append_utf8(character, text);
  return at;
}

// Resolves the escapes of a string that was scanned and found valid.
Decoded decode_string(std::string_view raw, std::string& text) {
  Decoded result;
  text.clear();
  const char *at = raw.data(), *const end = at + raw.size();
  while (at < end) {
    const auto* backslash = static_cast<const char*>(std::memchr(at, '\\', static_cast<size_t>(end - at)));
    if (backslash == nullptr) backslash = end;
    text.append(at, backslash);
    if (backslash == end) break;
    at = backslash + 2;
    switch (backslash[1]) {
      case 'b': text += '\b'; break;
      case 'f': text += '\f'; break;
      case 'n': text += '\n'; break;
      case 'r': text += '\r'; break;
      case 't': text += '\t'; break;
      case 'u': at = decode_unicode_escape(at, end, text, result); break;
      default: text += backslash[1];  // a quote, a backslash or a slash
    }
  }
  return result;
}

}  // namespace

JsonRecord::JsonRecord(std::vector<std::string> keys, bool replace_lone_surrogates)
    : keys_(std::move(keys)), replace_lone_surrogates_(replace_lone_surrogates), fields_(keys_.size()) {}

bool JsonRecord::fail(const char* reason, const char* at) {
  problem_ = {reason, at - begin_};
  return false;
}

void JsonRecord::skip_blanks() {
  while (at_ < end_ && (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r')) ++at_;
}

bool JsonRecord::parse(std::string_view record) {
  begin_ = at_ = record.data();
  end_ = begin_ + record.size();
  for (Field& field : fields_) field.kind = Kind::kMissing;
  if (record.starts_with("\xef\xbb\xbf")) return fail("Unexpected byte order mark", begin_);
  skip_blanks();
  const bool is_object = at_ < end_ && *at_ == '{';
  Kind kind;
  RawString string;
  if (!(is_object ? scan_object(1, /*top_level=*/true) : scan_value(0, kind, string))) return false;
  skip_blanks();
  if (at_ != end_) return fail("Extra data", at_);
  if (!is_object) {
    problem_ = {"The record is not an object with the wanted keys", -1};
    return false;
  }
  for (size_t key = 0; key < keys_.size(); ++key)
    if (!finish_field(key)) return false;
  return true;
}

bool JsonRecord::scan_value(int depth, Kind& kind, RawString& string) {
  const char first = at_ < end_ ? *at_ : '\0';
  switch (first) {
    case '"': kind = Kind::kString; return scan_string(string);
    case '{': kind = Kind::kObject; return scan_object(depth + 1, /*top_level=*/false);
    case '[': kind = Kind::kArray; return scan_array(depth + 1);
    case 'n': kind = Kind::kNull; return scan_word("null");
    case 't': kind = Kind::kBoolean; return scan_word("true");
    case 'f': kind = Kind::kBoolean; return scan_word("false");
    case 'N': kind = Kind::kNumber; return scan_word("NaN");
    case 'I': kind = Kind::kNumber; return scan_word("Infinity");
    default: kind = Kind::kNumber; return scan_number();
  }
}

bool JsonRecord::scan_word(std::string_view word) {
  if (!std::string_view(at_, static_cast<size_t>(end_ - at_)).starts_with(word)) return fail("Expecting value", at_);
  at_ += word.size();
  return true;
}

bool JsonRecord::scan_number() {
  const char* const start = at_;
  const auto digits = [this](const char* at) {
    while (at < end_ && *at >= '0' && *at <= '9') ++at;
    return at;
  };
  const char* at = start;
  if (at < end_ && *at == '-') ++at;
  if (at < end_ && *at == 'I') {
    at_ = at;
    return scan_word("Infinity") || fail("Expecting value", start);
  }
  const char* after = at < end_ && *at == '0' ? at + 1 : digits(at);
  if (after == at) return fail("Expecting value", start);
  at = after;
  // A point or an exponent without digits after it is not part of the number.
  if (at < end_ && *at == '.' && (after = digits(at + 1)) > at + 1) at = after;
  if (at < end_ && (*at == 'e' || *at == 'E')) {
    const char* exponent = at + 1;
    if (exponent < end_ && (*exponent == '+' || *exponent == '-')) ++exponent;
    if ((after = digits(exponent)) > exponent) at = after;
  }
  at_ = at;
  return true;
}

bool JsonRecord::scan_escape() {
  const char* const backslash = at_ - 1;
  if (*at_ != 'u') {
    if (std::memchr("\"\\/bfnrt", *at_, 8) == nullptr) return fail("Invalid \\escape", backslash);
    ++at_;
    return true;
  }
  const char* const letter = at_++;
  if (end_ - at_ <= 4) return fail("Invalid \\uXXXX escape", letter);
  for (int digit = 0; digit < 4; ++digit, ++at_)
    if (hex_digit(*at_) < 0) return fail("Invalid \\uXXXX escape", letter);
  return true;
}

bool JsonRecord::scan_string(RawString& string) {
  const char* const quote = at_++;
  string.escaped = false;
  for (;;) {
    at_ = find_json_special(at_, end_);
    if (at_ == end_) return fail("Unterminated string starting at", quote);
    if (*at_ == '"') break;
    if (*at_ != '\\') return fail("Invalid control character at", at_);
    string.escaped = true;
    if (++at_ == end_) return fail("Unterminated string starting at", quote);
    if (!scan_escape()) return false;
  }
  string.bytes = {quote + 1, static_cast<size_t>(at_ - quote - 1)};
  ++at_;
  return true;
}

bool JsonRecord::scan_array(int depth) {
  if (depth > kMaxJsonDepth) return fail("Nested too deeply", at_);
  ++at_;
  skip_blanks();
  if (at_ < end_ && *at_ == ']') return ++at_, true;
  for (;;) {
    Kind kind;
    RawString string;
    if (!scan_value(depth, kind, string)) return false;
    skip_blanks();
    if (at_ < end_ && *at_ == ']') return ++at_, true;
    if (at_ == end_ || *at_ != ',') return fail("Expecting ',' delimiter", at_);
    ++at_;
    skip_blanks();
  }
}

bool JsonRecord::scan_object(int depth, bool top_level) {
  if (depth > kMaxJsonDepth) return fail("Nested too deeply", at_);
  ++at_;
  skip_blanks();
  if (at_ < end_ && *at_ == '}') return ++at_, true;
  for (;;) {
    if (at_ == end_ || *at_ != '"') return fail("Expecting property name enclosed in double quotes", at_);
    RawString key, string;
    if (!scan_string(key)) return false;
    skip_blanks();
    if (at_ == end_ || *at_ != ':') return fail("Expecting ':' delimiter", at_);
    ++at_;
    skip_blanks();
    Kind kind;
    if (!scan_value(depth, kind, string)) return false;
    if (top_level)
      if (Field* field = wanted_field(key)) field->kind = kind, field->raw = string;
    skip_blanks();
    if (at_ < end_ && *at_ == '}') return ++at_, true;
    if (at_ == end_ || *at_ != ',') return fail("Expecting ',' delimiter", at_);
    ++at_;
    skip_blanks();
  }
}

JsonRecord::Field* JsonRecord::wanted_field(const RawString& key) {
  std::string_view name = key.bytes;
  if (key.escaped) {
    decode_string(key.bytes, decoded_key_);
    name = decoded_key_;
  }
  for (size_t index = 0; index < keys_.size(); ++index)
    if (keys_[index] == name) return &fields_[index];
  return nullptr;
}

// Checks the value that the key ended up with, and resolves its escapes.
bool JsonRecord::finish_field(size_t key) {
  static const char* const found[] = {"", "", "a number", "true or false", "null", "a list", "an object"};
  Field& field = fields_[key];
  if (field.kind == Kind::kMissing) {
    problem_ = {concat("No key '", keys_[key], "'"), -1};
    return false;
  }
  if (field.kind != Kind::kString) {
    problem_ = {concat("The value of '", keys_[key], "' is ", found[static_cast<int>(field.kind)], ", not a string"),
                -1};
    return false;
  }
  field.text = field.raw.bytes;
  if (!field.raw.escaped) return true;
  const Decoded decoded = decode_string(field.raw.bytes, field.decoded);
  field.text = field.decoded;
  if (decoded.num_lone_surrogates > 0 && !replace_lone_surrogates_) {
    problem_ = {format_printf("The value of '%s' holds \\u%04x, half of a surrogate pair", keys_[key].c_str(),
                              decoded.first_lone_surrogate),
                -1};
    return false;
  }
  num_replaced_ += decoded.num_lone_surrogates;
  return true;
}

}  // namespace espalier::data
