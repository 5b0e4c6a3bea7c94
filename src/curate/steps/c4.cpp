// The rules of C4 (Raffel et al. 2020), as its published code has them: which lines stay, which pages.
#include <algorithm>

#include "curate/python_lower.h"
#include "curate/steps/lines.h"
#include "curate/steps/steps.h"
#include "curate/word_list.h"
#include "text/python_text.h"
#include "text/sentence_splitter.h"

namespace espalier::curate {
namespace {

struct C4Rules {
  int64_t least_words = 5, least_sentences = 3, longest_word = 1000;
  std::unordered_set<std::string> bad_words;
};

bool has_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

// [1], [], [edit] and [citation needed] go.
std::string without_citations(std::string_view line) {
  std::string result;
  for (size_t at = 0; at < line.size();) {
    if (line[at] == '[') {
      const size_t end = line.find_first_not_of("0123456789", at + 1);
      if (end != std::string_view::npos && line[end] == ']') {
        at = end + 1;
        continue;
      }
      bool found = false;
      for (const std::string_view mark : {"[edit]", "[citation needed]"})
        if (line.substr(at).starts_with(mark)) {
          at += mark.size();
          found = true;
        }
      if (found) continue;
    }
    result += line[at++];
  }
  return result;
}

class C4Step : public Step {
 public:
  explicit C4Step(const C4Rules& rules) : rules_(rules) {}

  Fate apply(Document& document) const override {
    std::vector<std::string> lines;
    int64_t num_sentences = 0;
    for (const std::string_view raw : split_lines(document.text)) {
      const std::string_view stripped = text::python::strip(raw);
      if (has_long_word(stripped)) continue;
      std::string line = without_citations(stripped);
      if (!ends_a_sentence(line)) continue;
      if (static_cast<int64_t>(text::python::split_words(line).size()) < rules_.least_words) continue;
      const std::string lower = python_lower(line);
      if (has_any(lower, {"lorem ipsum"})) return Fate::dropped("lorem_ipsum");
      if (has_any(lower, {"javascript"})) continue;
      if (has_any(line, {"{"})) return Fate::dropped("brace");
      if (has_any(lower,
                  {"terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies"}))
        continue;
      std::vector<std::string_view> sentences;
      text::split_sentences(line, text::SentenceBlanks::kDropped, sentences);
      num_sentences += static_cast<int64_t>(sentences.size());
      lines.push_back(std::move(line));
    }
    if (num_sentences < rules_.least_sentences)
      return Fate::dropped("sentences", static_cast<double>(num_sentences),
                           static_cast<double>(rules_.least_sentences));
    document.text = text::python::strip(join_lines({lines.begin(), lines.end()}));
    if (has_bad_word(document.text)) return Fate::dropped("bad_words");
    return Fate::kept();
  }

 private:
  bool has_long_word(std::string_view line) const {
    const std::vector<std::string_view> words = text::python::split_words(line);
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return text::python::num_characters(word) > rules_.longest_word; });
  }
  static bool ends_a_sentence(std::string_view line) {
    if (line.ends_with("...") || line.empty()) return false;
    return std::string_view(".?!\"").find(line.back()) != std::string_view::npos;
  }
  bool has_bad_word(std::string_view text) const {
    if (rules_.bad_words.empty()) return false;
    const std::string lower = python_lower(text);
    const std::vector<std::string_view> words = text::python::split_words(lower);
    return std::any_of(words.begin(), words.end(),
                       [&](std::string_view word) { return rules_.bad_words.contains(std::string(word)); });
  }

  const C4Rules& rules_;
};

class C4Maker : public StepMaker {
 public:
  void add_rows(OptionTable& table) override {
    table.add("--least-words", rules_.least_words, "drop lines of fewer words").minimum(0);
    table.add("--least-sentences", rules_.least_sentences, "drop documents of fewer sentences").minimum(0);
    table.add("--longest-word", rules_.longest_word, "drop lines with a longer word").minimum(1);
    table.add("--bad-words", bad_words_, "a word a line; drop documents with one of them").value_name("FILE");
  }
  void check(Problems& problems) override {
    if (!bad_words_.empty()) rules_.bad_words = read_word_list(bad_words_, "--bad-words", problems);
  }
  std::unique_ptr<Step> make_step() const override { return std::make_unique<C4Step>(rules_); }

 private:
  std::string bad_words_;
  C4Rules rules_;
};

class SentencesStep : public Step {
 public:
  Fate apply(Document& document) const override {
    std::vector<std::string_view> sentences;
    text::split_sentences(document.text, text::SentenceBlanks::kDropped, sentences);
    document.text = join_lines(sentences);
    return Fate::kept();
  }
};

class SentencesMaker : public StepMaker {
 public:
  std::unique_ptr<Step> make_step() const override { return std::make_unique<SentencesStep>(); }
};

}  // namespace

std::unique_ptr<StepMaker> c4_maker() { return std::make_unique<C4Maker>(); }
std::unique_ptr<StepMaker> sentences_maker() { return std::make_unique<SentencesMaker>(); }

}  // namespace espalier::curate
