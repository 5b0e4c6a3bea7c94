// The pre_tokenizer of a tokenizer.json, taken apart into steps.
//
// ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, CharDelimiterSplit,
// FixedLength, Sequence. ByteLevel's last part, the change of bytes into characters, is not done where it comes last: a
// byte-level vocabulary takes the bytes themselves.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "text/internal/json_file.h"
#include "text/internal/pieces.h"
#include "text/pretokenizer.h"

namespace espalier::text::internal {

enum class StepKind { kPrefixBlank, kRule, kBytesToChars, kOther };

using UsePiece = std::function<void(const PieceView&)>;

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual StepKind kind() const { return StepKind::kOther; }
  virtual PieceRule rule() const { return PieceRule::kGpt2; }  // of kRule
  // Any thread. Cuts or changes a piece; what comes of it goes to `use`, in order, and is valid during the call.
  virtual void apply(const PieceView& piece, const UsePiece& use) const = 0;
};

struct PreTokenizerSteps {
  std::vector<std::unique_ptr<PreTokenizerStep>> steps;
  // `steps` do nothing but cut by this rule, after putting a blank before a text that begins with none if so said.
  std::optional<PieceRule> rule;
  bool prefix_blank = false;
  bool is_bert = false;     // `steps` are BertPreTokenizer's
  bool bytes_last = false;  // afterwards bytes stand for characters
  std::string where;        // the file and the place in it

  // Takes a text through all steps. Each piece goes through all before the next is made, so that no list of them is
  // ever held. `text` is not empty.
  void cut(const PieceView& text, const UsePiece& use) const;
};

// `part` may be absent: nothing is cut.
PreTokenizerSteps make_pre_tokenizer(const std::optional<JsonPart>& part);

}  // namespace espalier::text::internal
