// Documents by the length of their text: what the catalogue's filter_small_docs_bytes and OpenWebText's remove_512 ask.
#include "curate/steps/steps.h"
#include "text/python_text.h"

namespace espalier::curate {
namespace {

enum class LengthUnit { kBytes, kCharacters, kWords };

class LengthStep : public JudgedStep {
 public:
  LengthStep(LengthUnit unit, int64_t least, std::optional<int64_t> most) : unit_(unit), least_(least), most_(most) {}

 private:
  void judge(const Document& document, Judge& judge) const override {
    const auto length = static_cast<double>(length_of(document.text));
    if (judge.least("short", length, static_cast<double>(least_)) && most_)
      judge.most("long", length, static_cast<double>(*most_));
  }
  int64_t length_of(std::string_view text) const {
    switch (unit_) {
      case LengthUnit::kBytes: break;
      case LengthUnit::kCharacters: return text::python::num_characters(text);
      case LengthUnit::kWords: return static_cast<int64_t>(text::python::split_words(text).size());
    }
    return static_cast<int64_t>(text.size());
  }

  LengthUnit unit_;
  int64_t least_;
  std::optional<int64_t> most_;
};

class LengthMaker : public StepMaker {
 public:
  void add_rows(OptionTable& table) override {
    table.add("--least", least_, "drop shorter documents").minimum(0);
    table.add("--most", most_, "drop longer documents").minimum(0);
    table.add_choice(
        "--unit", unit_,
        {{"bytes", LengthUnit::kBytes}, {"characters", LengthUnit::kCharacters}, {"words", LengthUnit::kWords}},
        "what is counted; words are split at blanks");
  }
  void check(Problems& problems) override {
    if (most_ && *most_ < least_) problems.add("--least ", least_, " is more than --most ", *most_);
  }
  std::unique_ptr<Step> make_step() const override { return std::make_unique<LengthStep>(unit_, least_, most_); }

 private:
  LengthUnit unit_ = LengthUnit::kBytes;
  int64_t least_ = 1;
  std::optional<int64_t> most_;
};

}  // namespace

std::unique_ptr<StepMaker> length_maker() { return std::make_unique<LengthMaker>(); }

}  // namespace espalier::curate
