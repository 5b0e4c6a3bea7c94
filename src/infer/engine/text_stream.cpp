#include "infer/engine/text_stream.h"

#include <algorithm>
#include <utility>

namespace espalier::infer {
namespace {

constexpr std::string_view kUnfinished = "\uFFFD";

// Where the U+FFFD that end a text begin.
size_t end_of_whole_characters(std::string_view text) {
  while (text.ends_with(kUnfinished)) text.remove_suffix(kUnfinished.size());
  return text.size();
}

// The length of the longest end of `text` that a longer `stop` begins with.
size_t num_begun(std::string_view text, std::string_view stop) {
  for (size_t size = std::min(text.size(), stop.size() - 1); size > 0; --size)
    if (text.ends_with(stop.substr(0, size))) return size;
  return 0;
}

}  // namespace

TextPiece StopFinder::push(const std::string& text, bool may_stop) {
  if (!may_stop) return {.text = finish() + text, .stop = {}};
  held_ += text;
  TextPiece piece;
  size_t begin = 0, end = std::string::npos;
  for (size_t stop = 0; stop < stops_.size(); ++stop) {
    const size_t found = held_.find(stops_[stop]);
    if (found == std::string::npos) continue;
    const size_t found_end = found + stops_[stop].size();
    if (found_end > end || (found_end == end && found >= begin)) continue;
    begin = found;
    end = found_end;
    piece.stop = stop;
  }
  size_t num_free = begin;
  if (!piece.stop) {
    size_t num_held = 0;
    for (const std::string& stop : stops_) num_held = std::max(num_held, num_begun(held_, stop));
    num_free = held_.size() - num_held;
  }
  piece.text = held_.substr(0, num_free);
  held_.erase(0, piece.stop ? std::string::npos : num_free);
  return piece;
}

TextStream::TextStream(const text::Tokenizer& tokenizer, std::span<const int32_t> context,
                       std::vector<std::string> stops)
    : tokenizer_(tokenizer), stops_(std::move(stops)), window_(context.begin(), context.end()) {
  // A character that the context leaves unfinished belongs to the text that finishes it.
  const std::string text = tokenizer_.decode(window_, /*skip_special_tokens=*/true);
  taken_ = end_of_whole_characters(text);
  context_end_ = text.substr(taken_);
  num_taken_ = window_.size();
}

TextPiece TextStream::push(int32_t id, bool may_stop) {
  constexpr size_t kLongest = 4;  // bytes of a character, each at most an id of its own
  window_.push_back(id);
  ++num_unsettled_;
  const std::string whole = tokenizer_.decode(window_, /*skip_special_tokens=*/true);
  const size_t end = end_of_whole_characters(whole);
  std::string text;
  if (end > taken_) {
    text = take(whole, end);
    num_unsettled_ = 0;
  }
  if (end == whole.size())
    move_window();
  else if (num_unsettled_ >= kLongest)
    text += settle(window_.size() - (kLongest - 1));
  return stops_.push(text, may_stop);
}

TextPiece TextStream::finish() {
  TextPiece piece = stops_.push(settle(window_.size()));
  if (!piece.stop) piece.text += stops_.finish();
  return piece;
}

// The text of the window from what is taken up to `end`.
std::string TextStream::take(const std::string& whole, size_t end) {
  // What the context left unfinished stayed so: it is the context's.
  const std::string context_end = std::exchange(context_end_, {});
  if (std::string_view(whole).substr(taken_).starts_with(context_end)) taken_ += context_end.size();
  const auto is_inside_character = [&] { return taken_ < end && (static_cast<uint8_t>(whole[taken_]) & 0xC0) == 0x80; };
  while (is_inside_character()) ++taken_;  // a decoder that has changed its mind about what was taken
  if (taken_ >= end) return "";
  const size_t begin = std::exchange(taken_, end);
  return whole.substr(begin, end - begin);
}

// The text of the first `num_ids` ids of the window, as it is.
std::string TextStream::settle(size_t num_ids) {
  const std::string text = tokenizer_.decode(std::span(window_).first(num_ids), /*skip_special_tokens=*/true);
  num_unsettled_ = window_.size() - num_ids;
  return text.size() > taken_ ? take(text, text.size()) : "";
}

// So that a long text is not decoded again for each of its ids. A window whose first ids have no text is kept: the
// piece after them would be taken for the first of a text.
void TextStream::move_window() {
  const std::vector<int32_t> last(window_.begin() + static_cast<std::ptrdiff_t>(num_taken_), window_.end());
  num_taken_ = window_.size();
  const size_t size = tokenizer_.decode(last, /*skip_special_tokens=*/true).size();
  if (size == 0) return;
  window_ = last;
  num_taken_ = last.size();
  taken_ = size;
}

}  // namespace espalier::infer
