// What is curated: a text, what came with it, and what becomes of it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::curate {

// The other keys of a record, in its order. Values stay as they were in the input, byte for byte, until one is set.
class Metadata {
 public:
  // The value as JSON text; empty if there is no such key.
  std::string_view json(std::string_view key) const;
  // A value that is a string, decoded; nothing where there is no such key, or its value is not a string.
  std::optional<std::string> text(std::string_view key) const;
  void set(std::string_view key, const nlohmann::ordered_json& value);
  // `json` is valid JSON without line ends.
  void set_json(std::string_view key, std::string json);
  void erase(std::string_view key);

  struct Member {
    std::string key, json;
  };
  const std::vector<Member>& members() const { return members_; }

 private:
  std::vector<Member> members_;
};

struct Document {
  int64_t number = 0;  // from 0, in the order of the input; the same in every step of a recipe
  std::string text;    // valid UTF-8
  Metadata metadata;
};

// What a step says of a document.
struct Fate {
  enum class Kind {
    kKept,
    kDropped,
    kSplit,  // replaced by `pieces`, which have its number
  };
  Kind kind = Kind::kKept;
  // Of a document that goes: short, one of a few for each step ("word_repetition"), because the report counts by it.
  std::string reason;
  // What was measured and what it was held against, where the reason is about a number. For a duplicate: the number of
  // the document that stays is the threshold's place.
  std::optional<double> value, threshold;
  std::vector<Document> pieces;

  static Fate kept() { return {}; }
  static Fate dropped(std::string reason, std::optional<double> value = {}, std::optional<double> threshold = {}) {
    return {Kind::kDropped, std::move(reason), value, threshold, {}};
  }
  static Fate split(std::vector<Document> pieces) { return {Kind::kSplit, "", {}, {}, std::move(pieces)}; }
};

// A line of JSONL. False, and `reason` says why in Python's words, where it is not, or `text_key` is not a string.
// Bytes that are not UTF-8 become U+FFFD and are counted, as are halves of surrogate pairs.
bool parse_document(std::string_view line, std::string_view text_key, Document& document, std::string& reason,
                    int64_t& num_replaced);

// The line, without its end. The text has the place that it had in the record (`text_key` among the members), else it
// stands first.
void append_json(const Document& document, std::string_view text_key, std::string& line);

}  // namespace espalier::curate
