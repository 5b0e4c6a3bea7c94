// Against what BigScience's own code gave (tests/data/golden-use/oscar-filters.json).
#include <random>

#include "base/file.h"
#include "base/json.h"
#include "curate/internal/run_fixture.h"
#include "curate/python_lower.h"
#include "curate/steps/oscar_filters.h"

namespace espalier::curate {
namespace {

using test::TestFolder;
using test::write_text;

nlohmann::json oscar_golden() { return parse_json(read_file("tests/data/golden-use/oscar-filters.json"), "golden"); }

TEST(Oscar, MeasuresEqualUpstreamsToTheBit) {
  const nlohmann::json golden = oscar_golden();
  const OscarParameters& english = *find_oscar_parameters("en");
  const WordSet stop_words = {"the", "of", "and", "in", "was", "a"};
  ASSERT_EQ(golden.at("cases").size(), 9u);
  for (const nlohmann::json& one : golden.at("cases")) {
    const std::string name = one.at("name");
    const std::string modified = oscar_modified(one.at("document").get<std::string>(), english);
    EXPECT_EQ(modified, one.at("modified")) << name;
    const std::vector<std::string> words = oscar_words(modified, true);
    EXPECT_EQ(words, one.at("words").get<std::vector<std::string>>()) << name;
    EXPECT_EQ(oscar_words(modified, false).size(), one.at("n_words").get<size_t>()) << name;
    EXPECT_EQ(character_repetition(modified, 10), one.at("character_repetition").get<double>()) << name;
    EXPECT_EQ(word_repetition(words, 5), one.at("word_repetition").get<double>()) << name;
    EXPECT_EQ(special_character_share(modified), one.at("special").get<double>()) << name;
    EXPECT_EQ(listed_word_share(words, stop_words, WordPairs::kNone), one.at("stopwords").get<double>()) << name;
  }
}

TEST(Oscar, SpecialCharactersAreUpstreams) {
  std::vector<char32_t> special;
  for (char32_t code = 0; code <= 0x10FFFF; ++code)
    if (is_special_character(code)) special.push_back(code);
  EXPECT_EQ(special, oscar_golden().at("special_single_code_points").get<std::vector<char32_t>>());
}

TEST(Oscar, RepetitionOfShortTexts) {
  EXPECT_EQ(character_repetition("", 10), 0);
  EXPECT_EQ(character_repetition("123456789", 10), 0);
  EXPECT_EQ(character_repetition("1234567890", 10), 0);   // one window, which is single
  EXPECT_EQ(character_repetition("aaaaaaaaaaa", 10), 1);  // two equal windows
  EXPECT_EQ(word_repetition({"a", "b"}, 2), 0);
  EXPECT_EQ(word_repetition({"a", "a", "a", "b"}, 2), 2.0 / 3);
}

TEST(Oscar, WordsOfPairsCount) {
  const WordSet list = {"x y", "yz", "z"};
  EXPECT_EQ(listed_word_share({"x", "y", "z"}, list, WordPairs::kNone), 1.0 / 3);
  EXPECT_EQ(listed_word_share({"x", "y", "z"}, list, WordPairs::kBlank), 2.0 / 3);
  EXPECT_EQ(listed_word_share({"x", "y", "z"}, list, WordPairs::kJoined), 2.0 / 3);
  EXPECT_EQ(listed_word_share({"z"}, {"z"}, WordPairs::kBlank), 1);
  EXPECT_EQ(listed_word_share({}, list, WordPairs::kBlank), 0);
}

TEST(Oscar, DropsByTheFirstFilterThatObjects) {
  TestFolder folder;
  write_text(folder / "stop", "the\nof\n\nand \r\n");
  std::string words;
  std::mt19937 draw(1);
  for (int word = 0; word < 30; ++word)
    for (int letter = 0; letter < 6; ++letter) words += letter == 5 ? ' ' : static_cast<char>('a' + draw() % 26);
  const std::string english =
      concat("language = \"en\"\nleast_stop_words = 0.1\nstop_words = \"", folder / "stop", "\"");
  const auto reason = [&](const std::string& text) { return test::apply("oscar", english, text).fate.reason; };
  EXPECT_EQ(reason("too short"), "words");
  EXPECT_EQ(reason(words), "stop_words");
  EXPECT_EQ(reason(words + "the cat of rust and a dog of the sea and nobody in the park and all of us"), "");
  EXPECT_EQ(reason(words + words + words), "word_repetition");
  const Fate fate = test::apply("oscar", english, "one two three").fate;
  EXPECT_EQ(fate.value, 3);
  EXPECT_EQ(fate.threshold, 20);
  EXPECT_EQ(test::apply("oscar", "language = \"xx\"\nleast_words = 2", "\xc2\xa0one  two\n").text(), "one  two");
}

TEST(Oscar, AsksForTheLanguage) {
  std::string text;
  for (const std::string sentence :
       {"The river was high that spring, and the ferry did not run. ", "We walked along the bank until the old mill. ",
        "Nobody had told us that the bridge was closed. "})
    text += sentence;
  const std::string options = "language_model = \"cld2\"\nmost_word_repetition = 1\nmost_character_repetition = 1\n";
  EXPECT_EQ(test::apply("oscar", options + "language = \"en\"", text).fate.reason, "");
  EXPECT_EQ(test::apply("oscar", options + "language = \"fr\"", text).fate.reason, "language");
}

TEST(Oscar, RefusesWhatItCannotDo) {
  EXPECT_NE(test::problems_of("oscar", "language = \"zh\"").find("pieces of a model"), std::string::npos);
  const std::string problems = test::problems_of(
      "oscar",
      "language = \"en\"\nstop_words = \"none.txt\"\nlanguage_model = \"none.bin\"\nleast_words = 9\nmost_words = 3");
  EXPECT_NE(problems.find("3 problems"), std::string::npos) << problems;
}

TEST(Oscar, SaysThatALanguageHasNoTable) {
  for (const char* language : {"xx", "en"}) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(test::problems_of("oscar", concat("language = \"", language, "\"")), "");
    const bool said = ::testing::internal::GetCapturedStderr().find(
                          "no thresholds for xx; those of its 'default' are "
                          "taken. It has some for ar, bn, ca,") != std::string::npos;
    EXPECT_EQ(said, std::string_view(language) == "xx") << language;
  }
}

TEST(PythonLower, FollowsPython) {
  // Left to right what Python 3.11 gives.
  EXPECT_EQ(python_lower("ABC ÀÉ \xc4\xb0"), "abc àé i\xcc\x87");
  EXPECT_EQ(python_lower("ΟΔΟΣ ΣΑΣ Σ ΑΣ. ΑΣ'Β"), "οδος σας σ ας. ασ'β");
}

}  // namespace
}  // namespace espalier::curate
