// Answers in passages by DPR's rules: expected values are those of Python's unicodedata and regex, worked out by hand.
#include "retrieval/answer_match.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "retrieval/evidence.h"
#include "retrieval/questions.h"

namespace espalier::retrieval {
namespace answer_match_test {

using Words = std::vector<std::string>;

bool holds(AnswerMatch kind, const Words& answers, const std::string& passage) {
  return AnswerMatcher(kind, answers).matches(passage);
}

TEST(AnswerMatch, WordsAreRunsOfLettersMarksAndDigitsOrSingleCharacters) {
  EXPECT_EQ(answer_words("The U.S.-led 1,204 m²\tplan\n"),
            (Words{"the", "u", ".", "s", ".", "-", "led", "1", ",", "204", "m²", "plan"}));
  EXPECT_EQ(answer_words("caf\u00e9"), (Words{"cafe\u0301"})) << "NFD";
  EXPECT_EQ(answer_words(" \u00a0\u200b\u3000"), Words{});
}

TEST(AnswerMatch, AnswersAreWordsThatFollowEachOther) {
  EXPECT_TRUE(holds(AnswerMatch::kString, {"nothing", "Charles DARWIN"}, "It was Charles Darwin."));
  EXPECT_FALSE(holds(AnswerMatch::kString, {"Charles Darwin"}, "Charles R. Darwin"));
  EXPECT_FALSE(holds(AnswerMatch::kString, {"art"}, "Descartes")) << "whole words";
  EXPECT_TRUE(holds(AnswerMatch::kString, {"cafe\u0301"}, "a Caf\u00e9!"));
  EXPECT_FALSE(holds(AnswerMatch::kString, {"", " "}, "anything")) << "an answer without words";
  EXPECT_TRUE(holds(AnswerMatch::kString, {"1,204"}, "in 1,204 cases"));
}

TEST(AnswerMatch, RegularExpressionsMatchAnywhereWhateverTheCase) {
  EXPECT_TRUE(holds(AnswerMatch::kRegex, {"^in 19\\d\\d$"}, "see\nIn 1912\nand"));
  EXPECT_FALSE(holds(AnswerMatch::kRegex, {"(unclosed"}, "(unclosed"));
  EXPECT_TRUE(holds(AnswerMatch::kRegex, {"(unclosed", "art"}, "Descartes"));
}

TEST(AnswerMatch, HitsAccumulate) {
  EXPECT_EQ(top_k_hits({{false, true, false}, {true, false, true}, {false, false, false}}),
            (std::vector<int64_t>{1, 2, 2}));
  EXPECT_EQ(top_k_hits({}), std::vector<int64_t>{});
}

class RetrievalFiles : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& content) const {
    write_file_atomically(folder_ / "file", content);
    return folder_ / "file";
  }
  template <class Call>
  static std::string error_of(const Call& call) {
    try {
      call();
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / concat("espalier_retrieval_files_", ::getpid());
};

TEST_F(RetrievalFiles, PassagesAreQuotedAsPythonsCsvHasIt) {
  EvidenceReader reader(
      write("id\ttext\ttitle\r\n1\t\"two\nlines, a \"\"quote\"\"\tand a tab\"\tA \"b\"\r\n\n33\tplain\t\"T\"\n"));
  Passage passage;
  ASSERT_TRUE(reader.next(passage));
  EXPECT_EQ(passage.id, 1);
  EXPECT_EQ(passage.text, "two\nlines, a \"quote\"\tand a tab");
  EXPECT_EQ(passage.title, "A \"b\"");
  ASSERT_TRUE(reader.next(passage));
  EXPECT_EQ(passage.id, 33);
  EXPECT_EQ(passage.title, "T");
  EXPECT_FALSE(reader.next(passage));
}

TEST_F(RetrievalFiles, WhatIsNoPassageIsNamedWithItsLine) {
  const auto read = [&](const std::string& content) { return error_of([&] { list_passages(write(content)); }); };
  EXPECT_NE(read("1\ta\tb\n").find("expected a header such as"), std::string::npos);
  EXPECT_NE(read("id\ttext\ttitle\n1\ta\tb\nx\ta\tb\n").find("line 3: expected the number of a passage"),
            std::string::npos);
  EXPECT_NE(read("id\ttext\ttitle\n1\ta\n").find("line 2: expected three fields"), std::string::npos);
  EXPECT_NE(read("id\ttext\ttitle\n1\t\"a\tb\n").find("line 2: a field begins with a quotation mark"),
            std::string::npos);
  EXPECT_NE(error_of([&] {
              read_passages(write("id\ttext\ttitle\n1\ta\tb\n"), {1, 7});
            }).find("no passage 7"),
            std::string::npos);
}

TEST_F(RetrievalFiles, AnswersAreReadAsLiterals) {
  const auto questions = read_questions(write("who was it\t['Darwin', \"Charles' friend\"]\nwhen\t[]\n"));
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_EQ(questions[0].text, "who was it");
  EXPECT_EQ(questions[0].answers, (Words{"Darwin", "Charles' friend"}));
  EXPECT_TRUE(questions[1].answers.empty());
  const auto read = [&](const std::string& content) { return error_of([&] { read_questions(write(content)); }); };
  EXPECT_NE(read("a\t['b']\nwho\tprint(1)\n").find("line 2: the answers are not a list of strings"), std::string::npos);
  EXPECT_NE(read("who\t[1912]\n").find("expected a list of strings as answers"), std::string::npos);
  EXPECT_NE(read("who\n").find("found 1 field"), std::string::npos);
  EXPECT_NE(read("").find("holds no questions"), std::string::npos);
}

}  // namespace answer_match_test
}  // namespace espalier::retrieval
