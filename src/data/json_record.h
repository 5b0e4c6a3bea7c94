// One JSONL record: the texts of the wanted keys, or what is wrong with the record.
//
// Accepts and rejects exactly what Python's json.loads does, because that decides which lines of a corpus Megatron's
// tool takes: NaN, Infinity, -Infinity and 1E400 are numbers; of a repeated key the last value counts; only space, tab,
// CR and LF are blank; raw characters below U+0020 end a string with an error. Reasons and places are in Python's
// words. (Not copied: Python 3.11 also rejects integers of more than 4,300 digits.)
//
// The wanted keys are looked up at the top level only, and their values must be strings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::data {

// The first byte of [at, end) that a JSON string cannot simply hold: a quote, a backslash or a control character.
const char* find_json_special(const char* at, const char* end);

// Levels of nesting that are read, as in Python.
inline constexpr int kMaxJsonDepth = 994;

struct RecordProblem {
  std::string reason;   // "Expecting ',' delimiter"
  int64_t at_byte = 0;  // where in the record; -1: nowhere in particular
};

// Keeps its buffers between records; one per thread.
class JsonRecord {
 public:
  // A \uD800..\uDFFF without its other half is not a character: with `replace_lone_surrogates` it becomes U+FFFD and is
  // counted, without it the record is malformed (Megatron's tokenizers fail on it).
  JsonRecord(std::vector<std::string> keys, bool replace_lone_surrogates);

  // False: see problem(). The views that text() gave before become invalid; those it gives now point into `record`
  // or into this object.
  bool parse(std::string_view record);

  // The text of the key-th key. UTF-8 as it was in the record: invalid bytes are still there.
  std::string_view text(size_t key) const { return fields_[key].text; }
  const RecordProblem& problem() const { return problem_; }
  // Lone surrogates replaced so far, over all records.
  int64_t num_replaced() const { return num_replaced_; }

 private:
  enum class Kind { kMissing, kString, kNumber, kBoolean, kNull, kArray, kObject };
  struct RawString {
    std::string_view bytes;  // between the quotes
    bool escaped = false;
  };
  struct Field {
    Kind kind = Kind::kMissing;
    RawString raw;
    std::string_view text;
    std::string decoded;  // holds the text if there were escapes
  };

  bool fail(const char* reason, const char* at);
  void skip_blanks();
  bool scan_value(int depth, Kind& kind, RawString& string);
  bool scan_object(int depth, bool top_level);
  bool scan_array(int depth);
  bool scan_string(RawString& string);
  bool scan_escape();
  bool scan_number();
  bool scan_word(std::string_view word);
  Field* wanted_field(const RawString& key);
  bool finish_field(size_t key);

  std::vector<std::string> keys_;
  bool replace_lone_surrogates_;
  std::vector<Field> fields_;
  RecordProblem problem_;
  std::string decoded_key_;
  int64_t num_replaced_ = 0;
  const char *begin_ = nullptr, *at_ = nullptr, *end_ = nullptr;
};

}  // namespace espalier::data
