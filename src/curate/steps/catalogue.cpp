// The functions that cleaned the data sets of BLOOM's catalogue, by upstream's names and in the order given.
#include <algorithm>
#include <functional>

#include "base/format.h"
#include "curate/steps/lines.h"
#include "curate/steps/steps.h"
#include "curate/word_list.h"
#include "text/python_text.h"
#include "text/sentence_splitter.h"

namespace espalier::curate {
namespace {

// Changes the document; false: it is dropped.
using CatalogueFunction = std::function<bool(Document&)>;
struct NamedFunction {
  std::string name;
  CatalogueFunction call;
};

CatalogueFunction without_lines_with(std::vector<std::string> parts) {
  return [parts = std::move(parts)](Document& document) {
    std::vector<std::string_view> kept;
    for (const std::string_view line : split_lines(document.text))
      if (std::none_of(parts.begin(), parts.end(),
                       [&](const std::string& part) { return line.find(part) != std::string_view::npos; }))
        kept.push_back(line);
    document.text = join_lines(kept);
    return true;
  };
}

// Notices that the English Wiktionary puts into entries, tried in this order at each place.
const std::vector<std::string>& wiktionary_notices() {
  static const std::vector<std::string> notices = {
      "This entry needs pronunciation information",
      "Please try to find a suitable image on Wikimedia Commons or upload one there yourself!This entry needs "
      "pronunciation information",
      "You may continue to edit this entry while the discussion proceeds, but please mention significant edits at the "
      "RFD discussion and ensure that the intention of votes already cast is not left unclear",
      "This entry is part of the phrasebook project, which presents criteria for inclusion based on utility, "
      "simplicity "
      "and commonality",
      "If you are a native speaker with a microphone, please record some and upload them",
      "If you are familiar with the IPA then please add some!",
      "Feel free to edit this entry as normal, but do not remove {{rfv}} until the request has been resolved",
      "This entry needs quotations to illustrate usage",
      "Please see that page for discussion and justifications",
      "If you are familiar with the IPA or enPR then please add some!A user has added this entry to requests for "
      "verification(+) If it cannot be verified that this term meets our attestation criteria, it will be deleted",
      "This entry needs a photograph or drawing for illustration",
      "A user has added this entry to requests for deletion(+)",
      "Do not remove the {{rfd}} until the debate has finished",
      "This entry needs audio files",
      "If you come across any interesting, durably archived quotes then please add them!This entry is part of the "
      "phrasebook project, which presents criteria for inclusion based on utility, simplicity and commonality",
      "(For audio required quickly, visit WT:APR)"};
  return notices;
}

bool strip_wiktionary(Document& document) {
  std::string result;
  const std::string& text = document.text;
  for (size_t at = 0; at < text.size();) {
    const auto notice =
        std::find_if(wiktionary_notices().begin(), wiktionary_notices().end(),
                     [&](const std::string& candidate) { return text.compare(at, candidate.size(), candidate) == 0; });
    if (notice != wiktionary_notices().end())
      at += notice->size();
    else
      result += text[at++];
  }
  document.text = std::move(result);
  return true;
}

// Of the record, or of its "meta", as upstream has it.
std::optional<std::string> metadata_text(const Document& document, const std::string& key) {
  if (const std::optional<std::string> value = document.metadata.text(key)) return value;
  const auto meta = nlohmann::json::parse(document.metadata.json("meta"), nullptr, /*allow_exceptions=*/false);
  if (!meta.is_object() || !meta.contains(key) || !meta[key].is_string()) return std::nullopt;
  return meta[key].get<std::string>();
}

bool is_no_user_page(Document& document) { return !metadata_text(document, "title").value_or("").starts_with("User "); }
bool is_text_type(Document& document) { return metadata_text(document, "type") == "text"; }
bool is_not_blank(Document& document) { return !text::python::strip(document.text).empty(); }
bool has_fifteen_fields(Document& document) {
  return std::count(document.text.begin(), document.text.end(), ' ') + 1 >= 15;
}
CatalogueFunction with_bytes(size_t least) {
  return [least](Document& document) { return document.text.size() >= least; };
}
bool newlines_to_blanks(Document& document) {
  std::replace(document.text.begin(), document.text.end(), '\n', ' ');
  return true;
}
bool sentences_to_lines(Document& document) {
  std::vector<std::string_view> sentences;
  text::split_sentences(document.text, text::SentenceBlanks::kDropped, sentences);
  document.text = join_lines(sentences);
  return true;
}

// Lines at the end are dropped while too few of their words are stop words.
CatalogueFunction without_references(const std::unordered_set<std::string>& stop_words, double ratio) {
  return [&stop_words, ratio](Document& document) {
    std::vector<std::string_view> lines = split_lines(document.text);
    const auto passes = [&](std::string_view line) {
      const std::vector<std::string_view> words = text::python::split_words(line);
      const auto listed = std::count_if(words.begin(), words.end(),
                                        [&](std::string_view word) { return stop_words.contains(std::string(word)); });
      return static_cast<double>(listed) > static_cast<double>(words.size()) * ratio;
    };
    while (!lines.empty() && !passes(lines.back())) lines.pop_back();
    document.text = join_lines(lines);
    return true;
  };
}

struct ReferenceRatio {
  const char* language;
  double ratio;
};
constexpr ReferenceRatio kReferenceRatios[] = {{"ar", 0.07}, {"bn", 0.002}, {"ca", 0.25},  {"en", 0.3},  {"es", 0.4},
                                               {"eu", 0.05}, {"fr", 0.27},  {"hi", 0.01},  {"id", 0.15}, {"pt", 0.2},
                                               {"ur", 0.01}, {"vi", 0.08},  {"zh", 0.1691}};

class CatalogueStep : public Step {
 public:
  explicit CatalogueStep(const std::vector<NamedFunction>& functions) : functions_(functions) {}
  Fate apply(Document& document) const override {
    for (const NamedFunction& function : functions_)
      if (!function.call(document)) return Fate::dropped(function.name);
    return Fate::kept();
  }

 private:
  const std::vector<NamedFunction>& functions_;
};

class CatalogueMaker : public StepMaker {
 public:
  void add_rows(OptionTable& table) override {
    table.add("--functions", names_, "upstream's names, in the order in which they are to run")
        .value_name("NAME")
        .required();
    table.add("--stop-words", stop_words_file_, "a word a line, for remove_references_LANGUAGE").value_name("FILE");
  }
  void check(Problems& problems) override {
    if (!stop_words_file_.empty()) stop_words_ = read_word_list(stop_words_file_, "--stop-words", problems);
    functions_.clear();
    for (const std::string& name : names_) {
      const std::string why_not = add(name);
      if (!why_not.empty()) problems.add("--functions ", name, ": ", why_not);
    }
  }
  std::unique_ptr<Step> make_step() const override { return std::make_unique<CatalogueStep>(functions_); }

 private:
  static std::vector<NamedFunction> plain_functions() {
    return {{"replace_newline_with_space", newlines_to_blanks},
            {"remove_lines_with_code", without_lines_with({"{", "}", "[if", "<script"})},
            {"remove_html_spans", without_lines_with({"<span", "</span>", "<div", "</div>", "<a", "</a>", "br>"})},
            {"remove_html_spans_sanad", without_lines_with({"<img", "]]>", "<![CDATA", "//DW", "var ", "xtImg",
                                                            "To view this video please enable JavaScript"})},
            {"remove_wiki_mojibake", without_lines_with({"À À"})},
            {"strip_substrings_en_wiktionary", strip_wiktionary},
            {"filter_remove_empty_docs", is_not_blank},
            {"filter_wiki_user_titles", is_no_user_page},
            {"filter_wiki_non_text_type", is_text_type},
            {"filter_small_docs", has_fifteen_fields},
            {"filter_small_docs_bytes_300", with_bytes(300)},
            {"filter_small_docs_bytes_1024", with_bytes(1024)}};
  }

  // Why there is none of that name here; empty if it was added.
  std::string add(const std::string& name) {
    std::vector<std::string> known;
    for (NamedFunction& function : plain_functions()) {
      if (function.name == name) {
        functions_.push_back(std::move(function));
        return "";
      }
      known.push_back(function.name);
    }
    const std::string references = "remove_references_", sentences = "split_sentences_";
    if (name.starts_with(references)) return add_references(name, name.substr(references.size()));
    if (name.starts_with(sentences)) {
      const std::string language = name.substr(sentences.size());
      for (const char* western : {"en", "fr", "pt", "es"})
        if (language == western) {
          functions_.push_back({name, sentences_to_lines});
          return "";
        }
      return "sentences are cut by English rules, which serve en, es, fr and pt";
    }
    if (name.starts_with("dedup_")) return "it must see all documents first: use a step for duplicates";
    const std::vector<std::string> near = nearest_names(name, known);
    return concat("not a function of the catalogue that is supported",
                  near.empty() ? "." : "; did you mean " + join(near, " or ") + "?", " There are ", join(known, ", "),
                  ", remove_references_LANGUAGE, split_sentences_LANGUAGE");
  }

  std::string add_references(const std::string& name, const std::string& language) {
    for (const ReferenceRatio& row : kReferenceRatios) {
      if (language != row.language) continue;
      if (stop_words_file_.empty()) return "needs --stop-words";
      functions_.push_back({name, without_references(stop_words_, row.ratio)});
      return "";
    }
    return "upstream has no ratio for that language";
  }

  std::vector<std::string> names_;
  std::string stop_words_file_;
  std::unordered_set<std::string> stop_words_;
  std::vector<NamedFunction> functions_;
};

}  // namespace

std::unique_ptr<StepMaker> catalogue_maker() { return std::make_unique<CatalogueMaker>(); }

}  // namespace espalier::curate
