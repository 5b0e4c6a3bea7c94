// The rules of Gopher, C4 and the catalogue. Expected values are counted by hand, or by plain loops.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "curate/internal/run_fixture.h"

namespace espalier::curate {
namespace {

using test::apply;
using test::TestFolder;
using test::write_text;

// Of 55 different words, four letters long, with two stop words.
std::string good_text() {
  std::string text = "the cats of";
  for (int word = 0; word < 52; ++word) text += concat(" w", char('a' + word % 26), word < 26 ? "xy" : "uv");
  return text;
}
std::string gopher_reason(const std::string& text, const std::string& options = "") {
  return apply("gopher", options, text).fate.reason;
}

TEST(Gopher, KeepsAndDropsByItsRules) {
  EXPECT_EQ(gopher_reason(good_text()), "");
  EXPECT_EQ(gopher_reason(""), "few_words");
  EXPECT_EQ(gopher_reason("one"), "few_words");
  EXPECT_EQ(gopher_reason(good_text(), "most_words = 50"), "many_words");
  EXPECT_EQ(gopher_reason(good_text(), "least_mean_length = 5"), "short_words");
  EXPECT_EQ(gopher_reason(good_text(), "most_mean_length = 3"), "long_words");
  EXPECT_EQ(gopher_reason(good_text() + " ######"), "hashes");  // 6 for 56 words
  EXPECT_EQ(gopher_reason(good_text() + " ..." + std::string(" …a …b …c …d …e …f")), "ellipses");
  EXPECT_EQ(gopher_reason(good_text() + " 111 222 333 444 555 666 777 888 999 123 456 789 121 131"), "alphabetic");
  EXPECT_EQ(gopher_reason(good_text(), "least_stop_words = 3"), "stop_words");
  EXPECT_EQ(gopher_reason("- " + good_text()), "bullet_lines");
  EXPECT_EQ(gopher_reason(good_text() + "..."), "ellipsis_lines");
  const Fate fate = apply("gopher", "", "one two").fate;
  EXPECT_EQ(fate.value, 2);
  EXPECT_EQ(fate.threshold, 50);
}

TEST(Gopher, DropsRepetition) {
  std::string lines, paragraphs;
  for (int line = 0; line < 10; ++line) {
    lines += line % 2 == 0 ? "again\n" : concat("line ", line, "\n");
    paragraphs += line % 2 == 0 ? "again\n\n" : concat("part ", line, "\n\n");
  }
  EXPECT_EQ(gopher_reason(good_text() + "\n" + lines), "repeated_lines");
  EXPECT_EQ(gopher_reason(good_text() + "\n\n" + paragraphs), "repeated_paragraphs");
  std::string pairs;
  for (int pair = 0; pair < 9; ++pair) pairs += concat(" abcd efgh u", char('a' + pair));
  EXPECT_EQ(gopher_reason(good_text() + pairs), "top_2_words");  // 9 * 9 of 300 characters
  EXPECT_EQ(gopher_reason(good_text() + pairs, "no_repetition = true"), "");
  EXPECT_EQ(gopher_reason(good_text() + " " + good_text()), "repeated_5_words");
}

// Of windows of words, with a map of strings for each size.
std::map<std::string, double> plain_repetition(const std::vector<std::string>& words, double characters) {
  std::map<std::string, double> shares;
  const auto length = [](const std::string& text) {
    return static_cast<double>(
        std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
  };
  for (size_t size = 2; size <= 10; ++size) {
    std::map<std::string, int> counts;
    std::vector<std::string> order;
    double of_top = 0, of_repeated = 0;
    int most = 1;
    for (size_t at = 0; at + size <= words.size(); ++at) {
      std::string window;
      for (size_t word = at; word < at + size; ++word) window += (word > at && size < 5 ? " " : "") + words[word];
      order.push_back(window);
      ++counts[window];
    }
    for (const std::string& window : order)
      if (counts[window] > most) most = counts[window], of_top = most * length(window);
    std::set<std::string> seen;
    for (size_t at = 0; at < order.size();) {
      const bool is_new = seen.insert(order[at]).second;
      if (!is_new) of_repeated += length(order[at]);
      at += is_new ? 1 : size;
    }
    shares[concat(size < 5 ? "top_" : "repeated_", size, "_words")] = (size < 5 ? of_top : of_repeated) / characters;
  }
  return shares;
}

TEST(Gopher, MeasuresRepetitionAsAPlainLoopDoes) {
  const std::vector<std::string> vocabulary = {"a", "aa", "b", "ab", "\xc3\xa4", "a\xc3\xa4", "word"};
  std::mt19937 draw(3);
  const std::unique_ptr<StepMaker> maker = test::maker_of("gopher", "");
  for (const size_t count : {0, 1, 7, 33, 33, 33, 100, 100, 400}) {
    Document document;
    std::vector<std::string> words;
    for (size_t word = 0; word < count; ++word) {
      words.push_back(vocabulary[draw() % (count == 400 ? 7 : 2 + draw() % 6)]);
      document.text += (word == 0 ? "" : " ") + words.back();
    }
    std::vector<Measure> measures;
    maker->make_step()->measure(document, measures);
    const auto characters = static_cast<double>(
        std::count_if(document.text.begin(), document.text.end(), [](char byte) { return (byte & 0xC0) != 0x80; }));
    const std::map<std::string, double> expected = plain_repetition(words, std::max(characters, 1.0));
    size_t compared = 0;
    for (const Measure& measure : measures)
      if (const auto found = expected.find(measure.name); found != expected.end()) {
        EXPECT_DOUBLE_EQ(measure.value, found->second) << measure.name << " of: " << document.text;
        ++compared;
      }
    EXPECT_EQ(compared, 9u);
  }
}

std::string c4_text(const std::string& text, const std::string& options = "") {
  const test::Applied applied = apply("c4", options, text);
  return applied.fate.kind == Fate::Kind::kKept ? applied.text() : "dropped: " + applied.fate.reason;
}

TEST(C4, KeepsLinesThatEndSentences) {
  const std::string good =
      "The first line has some words.\nHere is the second one, my friend!\nIs there a third line too?";
  EXPECT_EQ(c4_text(good), good);
  EXPECT_EQ(c4_text("menu\n  " + good + "  \nno end of a sentence here\nto be continued by someone...\n\n"), good);
  EXPECT_EQ(c4_text(good + "\nToo few words."), good);
  EXPECT_EQ(c4_text(good + "\nPlease switch on JavaScript in your browser."), good);
  EXPECT_EQ(c4_text(good + "\nThis page uses cookies for its work."), good);
  EXPECT_EQ(c4_text(good + "\nA word " + std::string(1001, 'x') + " in this line."), good);
  EXPECT_EQ(c4_text("The first [12]line has[edit] some words[citation needed].\nHere is [x] two, my friend!\nA third "
                    "line of five words."),
            "The first line has some words.\nHere is [x] two, my friend!\nA third line of five words.");
}

TEST(C4, DropsPages) {
  const std::string good =
      "The first line has some words.\nHere is the second one, my friend!\nIs there a third line too?";
  EXPECT_EQ(c4_text(good + "\nWe write Lorem ipsum for this text."), "dropped: lorem_ipsum");
  EXPECT_EQ(c4_text(good + "\nOf code { there is a line here."), "dropped: brace");
  EXPECT_EQ(c4_text("Only one line of words here."), "dropped: sentences");
  EXPECT_EQ(c4_text(""), "dropped: sentences");
  TestFolder folder;
  write_text(folder / "bad", "friend!\n");
  EXPECT_EQ(c4_text(good, concat("bad_words = \"", folder / "bad", "\"")), "dropped: bad_words");
}

std::string catalogue(const std::string& functions, const std::string& text, const std::string& metadata = "{}",
                      const std::string& more = "") {
  const test::Applied applied = apply("catalogue", concat("functions = [", functions, "]\n", more), text, metadata);
  return applied.fate.kind == Fate::Kind::kKept ? applied.text() : "dropped: " + applied.fate.reason;
}

TEST(Catalogue, FunctionsDoWhatUpstreamsDo) {
  EXPECT_EQ(catalogue("\"replace_newline_with_space\"", "a\nb\n\n"), "a b  ");
  EXPECT_EQ(catalogue("\"remove_lines_with_code\"", "a\nif (x) {\n}\nb [if\n<script>\nc"), "a\nc");
  EXPECT_EQ(catalogue("\"remove_html_spans\"", "a <a href>\nb\nc <br>"), "b");
  EXPECT_EQ(catalogue("\"remove_wiki_mojibake\"", "À À\nÀ"), "À");
  EXPECT_EQ(catalogue("\"strip_substrings_en_wiktionary\"",
                      "x If you are familiar with the IPA then please add some!This entry needs audio files y"),
            "x  y");
  EXPECT_EQ(catalogue("\"filter_remove_empty_docs\"", " \n\t"), "dropped: filter_remove_empty_docs");
  EXPECT_EQ(catalogue("\"filter_small_docs\"", "1 2 3 4 5 6 7 8 9 10 11 12 13 14"), "dropped: filter_small_docs");
  EXPECT_EQ(catalogue("\"filter_small_docs\"", "1  3 4 5 6 7 8 9 10 11 12 13 14 15"),
            "1  3 4 5 6 7 8 9 10 11 12 13 14 15");
  EXPECT_EQ(catalogue("\"filter_small_docs_bytes_300\"", std::string(299, 'a')),
            "dropped: filter_small_docs_bytes_300");
  EXPECT_EQ(catalogue("\"split_sentences_en\"", "One. Two."), "One.\nTwo.");
  EXPECT_EQ(catalogue("\"remove_wiki_mojibake\", \"filter_remove_empty_docs\"", "À À"),
            "dropped: filter_remove_empty_docs");
}

TEST(Catalogue, ReadsTheMetadataOfWikis) {
  EXPECT_EQ(catalogue("\"filter_wiki_user_titles\"", "a", R"({"title": "User talk"})"),
            "dropped: filter_wiki_user_titles");
  EXPECT_EQ(catalogue("\"filter_wiki_user_titles\"", "a", R"({"meta": {"title": "Userland"}})"), "a");
  EXPECT_EQ(catalogue("\"filter_wiki_non_text_type\"", "a", R"({"meta": {"type": "text"}})"), "a");
  EXPECT_EQ(catalogue("\"filter_wiki_non_text_type\"", "a", R"({"type": "list"})"),
            "dropped: filter_wiki_non_text_type");
}

TEST(Catalogue, ReferencesGoFromTheEnd) {
  TestFolder folder;
  write_text(folder / "stop", "the\nof\n");
  const std::string list = concat("stop_words = \"", folder / "stop", "\"");
  EXPECT_EQ(catalogue("\"remove_references_en\"", "[0] Smith\nthe end of it\n[1] Smith\n\n[2] Of", "{}", list),
            "[0] Smith\nthe end of it");
  EXPECT_EQ(catalogue("\"remove_references_en\"", "Smith\n", "{}", list), "");
}

TEST(Catalogue, RefusesByName) {
  const std::string problems =
      test::problems_of("catalogue",
                        "functions = [\"dedup_document\", \"split_sentences_vi\", \"remove_references_en\", "
                        "\"filter_smal_docs\", \"concatenate_lm_fr_ester\"]");
  for (const std::string part :
       {"5 problems", "dedup_document: it must see all", "split_sentences_vi: sentences are cut",
        "remove_references_en: needs --stop-words", "did you mean filter_small_docs?"})
    EXPECT_NE(problems.find(part), std::string::npos) << part << "\n" << problems;
}

TEST(Sentences, StandOnLines) {
  EXPECT_EQ(apply("sentences", "", "One is here. Two!\n\nThree").text(), "One is here.\nTwo!\nThree");
  EXPECT_EQ(apply("sentences", "", "").text(), "");
}

TEST(Length, CountsBytesCharactersAndWords) {
  EXPECT_EQ(apply("length", "least = 3", "é").fate.reason, "short");
  EXPECT_EQ(apply("length", "least = 2", "é").fate.reason, "");
  EXPECT_EQ(apply("length", "least = 2\nunit = \"characters\"", "é").fate.value, 1);
  EXPECT_EQ(apply("length", "most = 2\nunit = \"words\"", "a b\tc").fate.reason, "long");
}

}  // namespace
}  // namespace espalier::curate
