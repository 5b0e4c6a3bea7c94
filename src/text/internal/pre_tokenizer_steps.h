// The pre_tokenizer of a tokenizer.json, taken apart into steps.
//
// ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, CharDelimiterSplit,
// FixedLength, Sequence. ByteLevel's last part, the change of bytes into characters, is not done where it comes last: a
// byte-level vocabulary takes the bytes themselves.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "text/internal/json_file.h"
#include "text/internal/pieces.h"
#include "text/pretokenizer.h"

namespace espalier::text::internal {

enum class StepKind { kPrefixBlank, kRule, kBytesToChars, kOther };

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual StepKind kind() const { return StepKind::kOther; }
  virtual PieceRule rule() const { return PieceRule::kGpt2; }  // of kRule
  // Any thread. Cuts or changes every piece that is no added token.
  virtual void apply(Pieces& pieces) const = 0;
};

struct PreTokenizerSteps {
  std::vector<std::unique_ptr<PreTokenizerStep>> steps;
  // `steps` do nothing but cut by this rule, after putting a blank before a text that begins with none if so said.
  std::optional<PieceRule> rule;
  bool prefix_blank = false;
  bool is_bert = false;     // `steps` are BertPreTokenizer's
  bool bytes_last = false;  // afterwards bytes stand for characters
};

// `part` may be absent: nothing is cut.
PreTokenizerSteps make_pre_tokenizer(const std::optional<JsonPart>& part);

// Bytes into their characters, where the model is not byte-level after all.
void change_bytes_to_chars(Pieces& pieces);

}  // namespace espalier::text::internal
