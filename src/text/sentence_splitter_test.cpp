// Where sentences end: texts written with the expected cuts in them.
#include "text/sentence_splitter.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>

#include "text/utf8.h"

namespace espalier::text {
namespace sentence_splitter_test {

std::vector<std::string> sentences_of(std::string_view text, SentenceBlanks blanks = SentenceBlanks::kDropped) {
  std::vector<std::string_view> views;
  split_sentences(text, blanks, views);
  return {views.begin(), views.end()};
}

// `marked` has a | where a sentence ends. The blanks around it are the text's.
void expect_cuts(const std::string& marked) {
  std::string text;
  std::vector<std::string> expected = {""};
  for (const char c : marked) {
    if (c == '|')
      expected.emplace_back();
    else
      text += c, expected.back() += c;
  }
  for (std::string& sentence : expected)
    for (bool trimmed = true; std::exchange(trimmed, false);)
      for (const std::string blank : {" ", "\n", "\r", "\t", "\f", "\u00a0", "\u3000", "\u2003", "\u2029"}) {
        if (sentence.starts_with(blank)) sentence.erase(0, blank.size()), trimmed = true;
        if (sentence.ends_with(blank)) sentence.erase(sentence.size() - blank.size()), trimmed = true;
      }
  EXPECT_EQ(sentences_of(text), expected) << marked;
}

TEST(SentenceSplitter, PlainSentences) {
  expect_cuts("This is one.| This is another!| Is this a third?| Yes");
  expect_cuts("One.|   Two.|\tThree.|\nFour.");
  expect_cuts("no capitals here. | but it ends all the same.");
  expect_cuts("Wrapped\nlines are one\nsentence.| This is the next.");
  expect_cuts("Really?!| Yes.| What??| No!!!| Fine.");
  expect_cuts("Tokens , as written by a tokenizer .| And more of them .");
}

TEST(SentenceSplitter, AbbreviationsAndTitles) {
  expect_cuts("Dr. Who met Mr. and Mrs. Smith, e.g. in St. Louis.| He left.");
  expect_cuts("We sell pens, i.e. Things to write with, cf. Miller et al. 2010, approx. five.| Good.");
  expect_cuts("Acme Inc. Chairman Bob Jones Jr. resigned.| He sold Acme Inc.| The firm closed.");
  expect_cuts("Bring pens, paper, etc.| Leave the rest.");
  expect_cuts("Bring pens, paper, etc. and leave.");
  expect_cuts("On Jan. 5 and Feb. 10 it rained.| It was cold in Dec.| But Nov. was warm.");
  expect_cuts("See Fig. 3, Eq. 4, Sec. IV, No. 5 and vol. B of it.| Said he: No.| I did not.");
  expect_cuts("The max. speed is high.| The govt. of it, the Blvd. Saint, 3 hrs. of work.");
  expect_cuts("It has a Ph.D. in it and a B.Sc. too.| He has an M.D.| The other has none.");
  expect_cuts("Gen. Lee and Lt. Col. Hill vs. Rep. Fox.| No one won.");
}

TEST(SentenceSplitter, InitialsAndCountries) {
  expect_cuts("J. R. R. Tolkien and George W. Bush met in the U.S. Senate.| They talked.");
  expect_cuts("He lives in the U.S.| He likes it.| In D.C. Smith was known.");
  expect_cuts("It was plan B.| The plan failed.| Roe v. Wade was decided.| The value of x.| Then y, see p. 5.");
  expect_cuts("We meet at 5 p.m. Monday.| We eat at 6 a.m.| Everyone comes, at 7 p.m. or later.");
}

TEST(SentenceSplitter, NumbersAndPlacesInTheNet) {
  expect_cuts("Pi is 3.14, not 3.| It was 1999.| Then came 2000.| Costs: $5.99.| Buy!");
  expect_cuts(
      "See www.example.com.| Or https://a.b/c?d=e.f&g=h!i for it.| Mail a.b@c.org.| Use Node.js. | Or file.txt, "
      "v1.2.3.");
  expect_cuts("Yes.No spaces.At all");
  expect_cuts("Is it 10.5.| Is it 7?| 8 is right.");
}

TEST(SentenceSplitter, QuotesAndBrackets) {
  expect_cuts("\"Stop!\" she said.| \"Why?\" he asked. | 'No.'| They left.");
  expect_cuts("He said \"no.\"| Then he left.| (He came back.)| [So it is.]| It is (as they say.) done.");
  expect_cuts("“Good.”| “Why?” asked he.| «Oui.»| ‘So.’| Done.");
  expect_cuts("It is so.[12]| It was so.[3][4]| **Bold.**| _Next._| `Code.`| End.");
  expect_cuts("I love Yahoo! is what he said.| Wow!| that is much.");
}

TEST(SentenceSplitter, Ellipses) {
  expect_cuts("Well... maybe.| Well...| Maybe.| So… on.| So…| On. . .| Then");
  expect_cuts("\u201cSo \u2026 \u201d said he, [and so on. ] and (why? ) on.| Then");
  expect_cuts("Wait.. what?| He had 5... 6 of them.");
}

TEST(SentenceSplitter, ParagraphsAndLists) {
  expect_cuts("A heading\n\n|The text.| More\r\n \r\n|Next heading\n\n\n|Text");
  expect_cuts("Buy:\n|- eggs\n|- milk, 2 l\n|* bread\n|• butter");
  expect_cuts("Steps:\n|1. Open it.|\n2. Look in\n|3. Close it.| Done.");
  expect_cuts("It was said in chapter\n5.| The next line goes on.");
  expect_cuts("(1) One\n|(2) Two\n|a) Three\n|b) Four - five");
  expect_cuts("one\r|- two\f|three");
}

TEST(SentenceSplitter, OtherScripts) {
  expect_cuts("今日は。|元気ですか？|はい！|「そう。」|次");
  expect_cuts("Это первое.| Это второе!| А это?| т.е. нет.");
  expect_cuts("Élan vital.| École est fermée. | était petit.| Ça va.");
  expect_cuts("هذا هو؟| نعم.| لا");
  expect_cuts("यह एक है।| यह दो है।");
  expect_cuts("One.\u00a0|Two.\u3000|Three.\u2003|Four\u2029");
}

TEST(SentenceSplitter, NothingGivesNothing) {
  EXPECT_EQ(sentences_of(""), std::vector<std::string>());
  EXPECT_EQ(sentences_of(" \n\t \u00a0\n\n"), std::vector<std::string>());
  EXPECT_EQ(sentences_of("", SentenceBlanks::kKept), std::vector<std::string>());
  EXPECT_EQ(sentences_of(" \n\n ", SentenceBlanks::kKept), std::vector<std::string>{" \n\n "});
  EXPECT_EQ(sentences_of("."), std::vector<std::string>{"."});
  EXPECT_EQ(sentences_of("  a  "), std::vector<std::string>{"a"});
}

TEST(SentenceSplitter, KeptBlanksBelongToTheSentenceBefore) {
  EXPECT_EQ(sentences_of(" One.  Two!\n\nThree\n", SentenceBlanks::kKept),
            (std::vector<std::string>{" One.  ", "Two!\n\n", "Three\n"}));
}

// Whatever the bytes: nothing is lost, nothing is cut inside a character, and both ways cut alike.
TEST(SentenceSplitter, RandomTextsStayWhole) {
  const std::vector<std::string> parts = {
      " ",      " ",   " ",   "\n",  "\n\n",  "\r\n", ".",    ".",    "!",        "?",        "…", "。",
      "」",     "\"",  "'",   "(",   ")",     "[3]",  "-",    "- ",   "1.",       "12",       "a", "The",
      "Mr",     "U.S", "e.g", "etc", "Ünder", "élan", "日本", "\xff", "\xe2\x80", "\xf0\x9f", "😀", "\u00a0",
      "\u2028", "\t",  "p.m", "I",   "x",     ",",    ";",    "*",    "_",        "Fig"};
  std::mt19937 random(5);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint32_t length = random() % 30; length > 0; --length) text += parts[random() % parts.size()];
    const std::vector<std::string> kept = sentences_of(text, SentenceBlanks::kKept);
    std::vector<std::string_view> dropped;
    split_sentences(text, SentenceBlanks::kDropped, dropped);
    std::string joined;
    for (const std::string& sentence : kept) joined += sentence;
    ASSERT_EQ(joined, text) << round;
    size_t at = 0;
    for (const std::string_view sentence : dropped) {
      ASSERT_FALSE(sentence.empty());
      const auto found = static_cast<size_t>(sentence.data() - text.data());
      ASSERT_GE(found, at) << text;
      for (const char* const blank : {" ", "\n", "\r", "\t", "\u00a0", "\u2028"}) {
        ASSERT_FALSE(sentence.starts_with(blank)) << text;
        ASSERT_FALSE(sentence.ends_with(blank)) << text;
      }
      // Between sentences are only blanks.
      ASSERT_TRUE(sentences_of(text.substr(at, found - at)).empty()) << text;
      at = found + sentence.size();
    }
    ASSERT_TRUE(sentences_of(text.substr(at)).empty()) << text;
    const bool valid = valid_utf8_prefix(text) == text.size();
    for (const std::string_view sentence : dropped)
      ASSERT_TRUE(!valid || valid_utf8_prefix(sentence) == sentence.size()) << text;
    ASSERT_EQ(dropped.size(), kept.size() - (dropped.empty() && !kept.empty()));
  }
}

// No text makes it slow: ten times as long takes about ten times as long, so a minute would not do for quadratic work.
TEST(SentenceSplitter, LongTextsWithoutBlanksAreNoTrouble) {
  std::string text;
  for (int at = 0; at < 2000000; ++at) text += "a.";
  EXPECT_EQ(sentences_of(text).size(), 1u);
  EXPECT_EQ(sentences_of(std::string(2000000, '.')).size(), 1u);
  EXPECT_EQ(sentences_of(std::string(2000000, '(') + ". X").size(), 2u);
  std::string lines;
  for (int at = 0; at < 1000000; ++at) lines += " \n.";
  EXPECT_GE(sentences_of(lines).size(), 1u);
}

}  // namespace sentence_splitter_test
}  // namespace espalier::text
