// Ids to text as they come: whole characters only, and nothing that may turn out to begin a stop string.
//
// A piece is the text that an id adds to those before it, since alone it may give another (text::decode_continuation).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer.h"

namespace espalier::infer {

struct TextPiece {
  std::string text;
  std::optional<size_t> stop;  // the stop string that ended the text: the first to be complete, of equals the longest
};

// Cuts a text at the first stop string, whatever pieces it comes in.
class StopFinder {
 public:
  explicit StopFinder(std::vector<std::string> stops) : stops_(std::move(stops)) {}
  // What is settled of the text so far. Text that may not stop is never part of a stop string.
  TextPiece push(const std::string& text, bool may_stop = true);
  // What was held back.
  std::string finish() { return std::exchange(held_, {}); }

 private:
  std::vector<std::string> stops_;
  std::string held_;  // may begin a stop string
};

class TextStream {
 public:
  // Text after `context`; the tokenizer must outlive it.
  TextStream(const text::Tokenizer& tokenizer, std::span<const int32_t> context, std::vector<std::string> stops);

  TextPiece push(int32_t id, bool may_stop = true);
  // What was held back, characters that were never finished as U+FFFD.
  TextPiece finish();

 private:
  std::string take(const std::string& whole, size_t end);
  std::string settle(size_t num_ids);
  void move_window();

  const text::Tokenizer& tokenizer_;
  StopFinder stops_;
  std::vector<int32_t> window_;  // from the ids of the last whole piece on, or from the first
  size_t num_taken_ = 0;         // ids of the window whose text was taken when it last ended with a whole character
  size_t num_unsettled_ = 0;     // last ids of the window that have added nothing but an unfinished character
  size_t taken_ = 0;             // bytes of the window's text
  std::string context_end_;      // U+FFFD with which the context ends
};

}  // namespace espalier::infer
