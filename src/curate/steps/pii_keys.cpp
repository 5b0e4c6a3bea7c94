#include "curate/steps/pii_keys.h"

#include <algorithm>
#include <cstdint>
#include <unordered_set>

#include "curate/regex.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::curate {
namespace {

constexpr int64_t kMostKeySteps = 20'000'000;

// What the expression asks of a character.
enum KeyClass : uint8_t {
  kUpper = 1,
  kLower = 2,
  kDigit = 4,
  kDash = 8,
  kJoint = 16,    // / + = :
  kLowLine = 32,  // _
  kEdge = 64,     // may stand before and after a key
  kBlank = 128,   // U+0020
};

uint8_t key_class_of(char32_t code) {
  if (code < 0x80) {
    const char c = static_cast<char>(code);
    if (c >= 'A' && c <= 'Z') return kUpper;
    if (c >= 'a' && c <= 'z') return kLower;
    if (c >= '0' && c <= '9') return kDigit;
    if (c == '-') return kDash;
    if (c == '_') return kLowLine;
    if (c == ':') return kJoint | kEdge;
    if (c == '/' || c == '+' || c == '=') return kJoint;
    if (c == ' ') return kBlank | kEdge;
    // Backspace is what \b means in a class.
    const bool edge =
        (c >= '\b' && c <= '\r') || (c != '\0' && std::string_view("@?,!;'\")(.").find(c) != std::string_view::npos);
    return edge ? kEdge : 0;
  }
  const text::Category category = text::category(code);
  if (category == text::Category::kDecimalNumber) return kDigit;
  if (category == text::Category::kDash) return kDash;
  return text::is_white_space(code) ? kEdge : 0;
}

// The characters of Han, which are edges too.
void mark_han(std::string_view text, const std::vector<size_t>& starts, std::vector<uint8_t>& classes) {
  bool all_ascii = starts.size() == text.size();
  if (all_ascii) return;
  static const Regex han("(\\p{sc:Han})", /*multiline=*/false);
  size_t index = 0;
  han.for_each(text, [&](const Regex::Match& match) {
    while (starts[index] < match.begin) ++index;
    classes[index] |= kEdge;
  });
}

// From one place on: the end of the match that going back step by step finds first.
class KeySearch {
 public:
  KeySearch(const std::vector<uint8_t>& classes, const std::vector<bool>& line_ends)
      : classes_(classes), line_ends_(line_ends) {}

  // 0: there is none.
  size_t end_of_key(size_t begin) {
    if (!may_begin(begin)) return 0;
    const size_t end = search(begin, Kind::kMixed, 4);
    return end != 0 ? end : search(begin, Kind::kGroups, 3);
  }
  bool gave_up() const { return steps_ > kMostKeySteps; }

 private:
  enum class Kind { kMixed, kGroups };
  struct Frame {
    size_t at;
    int count;  // elements before, at most the number that is needed
    std::vector<size_t> ends;
    size_t next = 0;
  };

  // Whether an element of either kind can begin there; in prose few do.
  bool may_begin(size_t at) const {
    const auto is = [&](size_t place, int wanted) {
      return place < classes_.size() && (classes_[place] & wanted) != 0;
    };
    const size_t letters = run(at, kUpper | kLower);
    return letters > at ? is(letters, kDigit | kDash | kJoint | kLowLine) : is(at, kDigit | kDash | kJoint);
  }

  size_t run(size_t at, int wanted) const {
    while (at < classes_.size() && (classes_[at] & wanted) != 0) ++at;
    return at;
  }

  size_t search(size_t begin, Kind kind, int needed) {
    std::unordered_set<uint64_t> hopeless;
    std::vector<Frame> stack;
    const auto open = [&](size_t at, int count) {
      stack.push_back({at, count, kind == Kind::kMixed ? mixed_ends(at) : group_ends(at)});
    };
    open(begin, 0);
    while (!stack.empty() && !gave_up()) {
      Frame& frame = stack.back();
      ++steps_;
      if (frame.next < frame.ends.size()) {
        const size_t end = frame.ends[frame.next++];
        const int count = std::min(frame.count + 1, needed);
        if (!hopeless.contains(end * 8 + static_cast<uint64_t>(count))) open(end, count);
        continue;
      }
      // No further element: the match ends here, if it may.
      if (frame.count >= needed && ends_key(frame.at)) return frame.at;
      hopeless.insert(frame.at * 8 + static_cast<uint64_t>(frame.count));
      stack.pop_back();
    }
    return 0;
  }

  bool ends_key(size_t at) const { return line_ends_[at] || (classes_[at] & kEdge) != 0; }

  // Letters and then digits and joints, or the other way round; the longest first.
  std::vector<size_t> mixed_ends(size_t at) {
    std::vector<size_t> ends;
    const auto add_down = [&](size_t longest, size_t least) {
      for (size_t end = longest; end >= least; --end) ends.push_back(end);
    };
    if (const size_t letters = run(at, kUpper | kLower); letters > at)
      add_down(run(letters, kDigit | kDash | kJoint | kLowLine), letters + 1);
    if (const size_t digits = run(at, kDigit | kDash | kJoint); digits > at)
      add_down(run(digits, kUpper | kLower), digits + 1);
    steps_ += static_cast<int64_t>(ends.size());
    return ends;
  }

  // Three digits and more, or capitals and digits; a blank or a dash may follow.
  std::vector<size_t> group_ends(size_t at) {
    std::vector<size_t> ends;
    const auto add = [&](size_t end) {
      if (end < classes_.size() && (classes_[end] & (kBlank | kDash)) != 0) ends.push_back(end + 1);
      ends.push_back(end);
    };
    const size_t digits = run(at, kDigit);
    for (size_t end = digits; end >= at + 3; --end) add(end);
    if (const size_t capitals = run(at, kUpper); capitals > at) {
      for (size_t middle = run(capitals, kDigit); middle > capitals; --middle)
        for (size_t end = run(middle, kUpper); end >= middle; --end) add(end);
    }
    if (digits > at) {
      for (size_t middle = run(digits, kUpper); middle > digits; --middle)
        for (size_t end = run(middle, kDigit); end >= middle; --end) add(end);
    }
    steps_ += static_cast<int64_t>(ends.size());
    return ends;
  }

  const std::vector<uint8_t>& classes_;
  const std::vector<bool>& line_ends_;
  int64_t steps_ = 0;
};

}  // namespace

bool find_keys(std::string_view text, std::vector<std::string>& keys) {
  static const std::vector<uint8_t> classes_of_ascii = [] {
    std::vector<uint8_t> ascii(0x80);
    for (char32_t code = 0; code < 0x80; ++code) ascii[code] = key_class_of(code);
    return ascii;
  }();
  std::vector<size_t> starts;  // of each character
  std::vector<uint8_t> classes;
  starts.reserve(text.size() + 1);
  classes.reserve(text.size());
  bool has_digit_or_joint = false;
  for (size_t at = 0; at < text.size();) {
    const text::CodePoint point = text::decode_utf8(text.data() + at);
    starts.push_back(at);
    classes.push_back(point.code < 0x80 ? classes_of_ascii[point.code] : key_class_of(point.code));
    has_digit_or_joint |= (classes.back() & (kDigit | kDash | kJoint)) != 0;
    at += static_cast<size_t>(point.num_bytes);
  }
  if (!has_digit_or_joint) return true;
  mark_han(text, starts, classes);
  const size_t count = starts.size();
  starts.push_back(text.size());
  std::vector<bool> line_ends(count + 1, false);
  for (size_t at = 0; at < count; ++at) line_ends[at] = text[starts[at]] == '\n';
  line_ends[count] = true;

  KeySearch search(classes, line_ends);
  // A match begins with an edge, or at the start of a line, and includes the edge after it.
  for (size_t at = 0; at < count;) {
    size_t begin = 0, end = 0;
    if (at == 0 || text[starts[at - 1]] == '\n') end = search.end_of_key(begin = at);
    if (end == 0 && (classes[at] & kEdge) != 0 && at + 1 < count) end = search.end_of_key(begin = at + 1);
    if (search.gave_up()) return false;
    if (end == 0) {
      ++at;
      continue;
    }
    keys.emplace_back(text.substr(starts[begin], starts[end] - starts[begin]));
    at = line_ends[end] ? end : end + 1;  // $ is tried before the edge
  }
  return true;
}

}  // namespace espalier::curate
