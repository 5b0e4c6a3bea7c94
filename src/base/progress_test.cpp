#include "base/console.h"

#include <gtest/gtest.h>

#include "base/progress.h"

namespace espalier {
namespace {

TEST(FitColumns, CutsWhatDoesNotFit) {
  EXPECT_EQ(fit_columns("1234567", 7), "1234567");
  EXPECT_EQ(fit_columns("12345678", 7), "1234...");
  EXPECT_EQ(fit_columns("12345678", 3), "...");
  EXPECT_EQ(fit_columns("12345678", 2), "..");
  EXPECT_EQ(fit_columns("", 0), "");
}

TEST(FitColumns, CountsWideCharactersAsTwoAndCutsNone) {
  EXPECT_EQ(fit_columns("\u00e9\u00e9\u00e9\u00e9\u00e9", 5), "\u00e9\u00e9\u00e9\u00e9\u00e9");
  EXPECT_EQ(fit_columns("\u8a9e\u8a9e\u8a9e", 6), "\u8a9e\u8a9e\u8a9e");
  EXPECT_EQ(fit_columns("\u8a9e\u8a9e\u8a9e\u8a9e", 7), "\u8a9e\u8a9e...");
  EXPECT_EQ(fit_columns("\u8a9e\u8a9e\u8a9e\u8a9e", 6), "\u8a9e...") << "half a character would not fit";
}

// What matters most stays longest: title, share, time left.
TEST(ProgressLine, GivesUpItsPartsWhereItIsTooWide) {
  Progress::Facts facts;
  facts.title = "preprocess";
  facts.note = "1,204 documents (602/s)";
  facts.unit = Progress::Unit::kBytes;
  facts.done = 50'000'000;
  facts.total = 200'000'000;
  facts.seconds = 10;
  const std::string whole = "preprocess: 50.0 MB of 200.0 MB (25%), 5.0 MB/s, 1,204 documents (602/s), 30 s left";
  EXPECT_EQ(Progress::line(facts, whole.size()), whole);
  EXPECT_EQ(Progress::line(facts, whole.size() - 1), "preprocess: 50.0 MB of 200.0 MB (25%), 5.0 MB/s, 30 s left");
  EXPECT_EQ(Progress::line(facts, 40), "preprocess: 25%, 5.0 MB/s, 30 s left");
  EXPECT_EQ(Progress::line(facts, 30), "preprocess: 25%, 30 s left");
}

TEST(ProgressLine, SaysSinceWhenWhereNoTimeLeftIsKnown) {
  Progress::Facts facts;
  facts.title = "merge";
  facts.item = "words";
  facts.seconds = 61;
  facts.done = 1234;
  EXPECT_EQ(Progress::line(facts, 100), "merge: 1,234 words, 20.2/s, 1 min 01 s so far");
  facts.done = 0;
  facts.total = 99;
  EXPECT_EQ(Progress::line(facts, 100), "merge: 0 of 99 words (0%), 0.0/s, 1 min 01 s so far");
}

}  // namespace
}  // namespace espalier
