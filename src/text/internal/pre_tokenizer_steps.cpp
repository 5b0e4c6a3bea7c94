#include "text/internal/pre_tokenizer_steps.h"

#include <utility>

#include "base/error.h"
#include "text/internal/byte_level.h"
#include "text/internal/growth_limit.h"
#include "text/internal/pattern.h"
#include "text/internal/piece_scanner.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

namespace espalier::text::internal {

namespace {

// Gives on the part of a piece that a stretch is.
void give(const PieceView& piece, size_t begin, size_t end, const UsePiece& use) {
  if (begin < end) use({piece.text.substr(begin, end - begin), piece.at_origin && begin == 0});
}

class SplitStep final : public PreTokenizerStep {
 public:
  SplitStep(std::unique_ptr<Pattern> pattern, SplitBehavior behavior, bool invert = false)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(const PieceView& piece, const UsePiece& use) const override {
    const Pattern::Use give_on = [&](const Stretch& kept) { give(piece, kept.begin, kept.end, use); };
    StretchJoiner joiner(behavior_, give_on);
    pattern_->for_each(piece.text, [&](const Stretch& found) {
      joiner.add({found.begin, found.end, found.is_match != invert_});
    });
    joiner.finish();
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class RuleStep final : public PreTokenizerStep {
 public:
  explicit RuleStep(PieceRule rule) : rule_(rule) {}
  void apply(const PieceView& piece, const UsePiece& use) const override {
    const char* const text = piece.text.data();
    for_each_piece(rule_, piece.text, [&](const char* begin, const char* end) {
      give(piece, static_cast<size_t>(begin - text), static_cast<size_t>(end - text), use);
    });
  }
  StepKind kind() const override { return StepKind::kRule; }
  PieceRule rule() const override { return rule_; }

 private:
  PieceRule rule_;
};

class PrefixBlankStep final : public PreTokenizerStep {
 public:
  StepKind kind() const override { return StepKind::kPrefixBlank; }
  void apply(const PieceView& piece, const UsePiece& use) const override {
    if (piece.text[0] == ' ') return use(piece);
    const std::string prefixed = " " + std::string(piece.text);
    use({prefixed, piece.at_origin});
  }
};

class BytesToCharsStep final : public PreTokenizerStep {
 public:
  StepKind kind() const override { return StepKind::kBytesToChars; }
  void apply(const PieceView& piece, const UsePiece& use) const override {
    const std::string characters = piece_of_bytes(piece.text);
    use({characters, piece.at_origin});
  }
};

class MetaspaceStep final : public PreTokenizerStep {
 public:
  enum class Prepend { kAlways, kFirst, kNever };
  MetaspaceStep(char32_t replacement, Prepend prepend, bool split) : prepend_(prepend), split_(split) {
    append_utf8(replacement, replacement_);
    pattern_ = literal_pattern(replacement_);
  }
  void apply(const PieceView& piece, const UsePiece& use) const override {
    const std::string replaced = replace(piece);
    const PieceView whole{replaced, piece.at_origin};
    if (!split_) return use(whole);
    const Pattern::Use give_on = [&](const Stretch& kept) { give(whole, kept.begin, kept.end, use); };
    StretchJoiner joiner(SplitBehavior::kMergedWithNext, give_on);
    pattern_->for_each(replaced, [&](const Stretch& found) { joiner.add(found); });
    joiner.finish();
  }

 private:
  std::string replace(const PieceView& piece) const {
    const bool wanted = prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && piece.at_origin);
    const bool begins_so = piece.text[0] == ' ' || piece.text.starts_with(replacement_);
    std::string replaced = wanted && !begins_so ? replacement_ : "";
    for (const char byte : piece.text) {
      if (byte == ' ')
        replaced += replacement_;
      else
        replaced += byte;
    }
    return replaced;
  }

  std::string replacement_;
  std::unique_ptr<Pattern> pattern_;
  Prepend prepend_;
  bool split_;
};

class FixedLengthStep final : public PreTokenizerStep {
 public:
  explicit FixedLengthStep(int64_t length) : length_(length) {}
  void apply(const PieceView& piece, const UsePiece& use) const override {
    size_t begin = 0;
    int64_t count = 0;
    for (size_t at = 0; at < piece.text.size();) {
      at += static_cast<size_t>(decode_utf8(piece.text.data() + at).num_bytes);
      if (++count < length_ && at < piece.text.size()) continue;
      give(piece, begin, at, use);
      begin = at;
      count = 0;
    }
  }

 private:
  int64_t length_;
};

// Whitespace's \w+|[^\w\s]+ as two cuts: at blanks, then between words and the rest.
std::vector<std::unique_ptr<PreTokenizerStep>> whitespace_steps() {
  std::vector<std::unique_ptr<PreTokenizerStep>> steps;
  steps.push_back(std::make_unique<SplitStep>(character_pattern(is_white_space), SplitBehavior::kRemoved));
  steps.push_back(std::make_unique<SplitStep>(run_pattern(is_word_for_whitespace), SplitBehavior::kIsolated));
  return steps;
}

std::unique_ptr<PreTokenizerStep> make_metaspace(const JsonPart& part) {
  const std::string scheme = part.text("prepend_scheme", "always");
  using Prepend = MetaspaceStep::Prepend;
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    part.fail("'prepend_scheme' is '" + scheme + "'; use always, first or never");
  }
  Prepend prepend = scheme == "always" ? Prepend::kAlways : scheme == "first" ? Prepend::kFirst : Prepend::kNever;
  if (!part.flag("add_prefix_space", true)) {  // of files before prepend_scheme
    if (part.has("prepend_scheme") && prepend != Prepend::kNever) {
      part.fail("'add_prefix_space' is false but 'prepend_scheme' is '" + scheme + "'");
    }
    prepend = Prepend::kNever;
  }
  return std::make_unique<MetaspaceStep>(part.character("replacement"), prepend, part.flag("split", true));
}

void add_byte_level(const JsonPart& part, std::vector<std::unique_ptr<PreTokenizerStep>>& steps) {
  if (part.flag("add_prefix_space")) steps.push_back(std::make_unique<PrefixBlankStep>());
  if (part.flag("use_regex", true)) steps.push_back(std::make_unique<RuleStep>(PieceRule::kGpt2));
  steps.push_back(std::make_unique<BytesToCharsStep>());
}

std::unique_ptr<PreTokenizerStep> make_split(const JsonPart& part) {
  const SplitBehavior behavior = make_behavior(part, "behavior");
  const bool invert = part.flag("invert");
  const JsonPart pattern = part.part("pattern");
  if (pattern.has("Regex") && behavior == SplitBehavior::kIsolated) {  // where invert changes nothing
    if (const auto rule = rule_of_pattern(pattern.text("Regex"))) return std::make_unique<RuleStep>(*rule);
  }
  return std::make_unique<SplitStep>(make_pattern(pattern), behavior, invert);
}

void add_steps(const JsonPart& part, std::vector<std::unique_ptr<PreTokenizerStep>>& steps) {
  const std::string type = part.type();
  const auto split_at = [&steps](std::unique_ptr<Pattern> pattern, SplitBehavior behavior) {
    steps.push_back(std::make_unique<SplitStep>(std::move(pattern), behavior));
  };
  if (type == "Sequence") {
    for (size_t i = 0; i < part.list("pretokenizers").size(); ++i) add_steps(part.element("pretokenizers", i), steps);
  } else if (type == "ByteLevel") {
    add_byte_level(part, steps);
  } else if (type == "Split") {
    steps.push_back(make_split(part));
  } else if (type == "Metaspace") {
    steps.push_back(make_metaspace(part));
  } else if (type == "Digits") {
    split_at(character_pattern(is_numeric_for_digits),
             part.flag("individual_digits") ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  } else if (type == "Punctuation") {
    split_at(character_pattern(is_punctuation_for_split),
             part.has("behavior") ? make_behavior(part, "behavior") : SplitBehavior::kIsolated);
  } else if (type == "WhitespaceSplit" || type == "BertPreTokenizer") {
    split_at(character_pattern(is_white_space), SplitBehavior::kRemoved);
    if (type == "BertPreTokenizer") split_at(character_pattern(is_punctuation_for_split), SplitBehavior::kIsolated);
  } else if (type == "Whitespace") {
    for (auto& step : whitespace_steps()) steps.push_back(std::move(step));
  } else if (type == "CharDelimiterSplit") {
    std::string delimiter;
    append_utf8(part.character("delimiter"), delimiter);
    split_at(literal_pattern(delimiter), SplitBehavior::kRemoved);
  } else if (type == "FixedLength") {
    steps.push_back(std::make_unique<FixedLengthStep>(part.has("length") ? part.whole_number("length") : 5));
  } else {
    part.refuse_type(
        "ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, "
        "CharDelimiterSplit, FixedLength, Sequence");
  }
}

}  // namespace

void PreTokenizerSteps::cut(const PieceView& text, const UsePiece& use) const {
  const GrowthLimit limit(where, text.text.size());
  std::vector<size_t> given(steps.size(), 0);  // bytes that each step gave on
  const std::function<void(size_t, const PieceView&)> take = [&](size_t step, const PieceView& piece) {
    if (step == steps.size()) return use(piece);
    steps[step]->apply(piece, [&, step](const PieceView& made) {
      given[step] += made.text.size();
      limit.check(given[step]);
      take(step + 1, made);
    });
  };
  take(0, text);
}

PreTokenizerSteps make_pre_tokenizer(const std::optional<JsonPart>& part) {
  PreTokenizerSteps made;
  if (!part) return made;
  made.where = part->where();
  std::vector<std::unique_ptr<PreTokenizerStep>>& steps = made.steps;
  add_steps(*part, steps);
  constexpr size_t kMostSteps = 64;  // each is a few frames of the stack
  if (steps.size() > kMostSteps)
    part->fail(concat("it has ", steps.size(), " steps; at most ", kMostSteps, " are read"));
  made.is_bert = part->type() == "BertPreTokenizer";
  if (!steps.empty() && steps.back()->kind() == StepKind::kBytesToChars) {
    made.bytes_last = true;
    steps.pop_back();
  }
  // [a blank before the text] [one known cut]: nothing else is done to a text.
  const bool prefix = steps.size() == 2 && steps[0]->kind() == StepKind::kPrefixBlank;
  if ((steps.size() == 1 || prefix) && steps.back()->kind() == StepKind::kRule) {
    made.rule = steps.back()->rule();
    made.prefix_blank = prefix;
  }
  return made;
}

}  // namespace espalier::text::internal
