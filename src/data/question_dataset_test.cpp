// Questions and passages: the files by hand, samples beside what upstream's reader makes of them, draws that are
// functions of the sample's number.
#include "data/question_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>

#include "base/file.h"
#include "data/internal/test_folder.h"

namespace espalier::data {
namespace question_dataset_test {

using test_files::TestFolder;
using Ids = std::vector<int64_t>;
using Array = QuestionDataset::Array;

// Words of tests/data's vocabulary of BERT.
constexpr const char* kQuestions = R"([
  {"dataset": "nq", "question": "and mask?", "answers": ["x"],
   "positive_ctxs": [{"title": "the", "text": "don the", "score": 1}, {"title": "b", "text": "c"}],
   "hard_negative_ctxs": [{"title": "and", "text": "don"}, {"title": "mask", "text": "don"}, {"title": "the", "text": "don"}],
   "negative_ctxs": [{"title": "aus", "text": "the the the the the the the the"}]},
  {"question": "the", "answers": [], "positive_ctxs": [{"title": null, "text": "aus"}], "hard_negative_ctxs": [],
   "negative_ctxs": [{"title": "don", "text": "and"}]}
])";

class Questions : public ::testing::Test {
 protected:
  Questions() {
    text::TokenizerOptions options;
    options.type = "BertWordPieceLowerCase";
    options.vocab_file = "tests/data/megatron_tokenizers/bert_lower/vocab.txt";
    tokenizer_ = text::load_tokenizer(options);
  }
  int64_t id(const char* word) const { return *tokenizer_->piece_to_id(word); }
  QuestionSampleOptions options(bool draws, int64_t hard, int64_t others) const {
    return {.sequence_length = 7,
            .seed = 5,
            .hard_negatives = hard,
            .negatives = others,
            .draws = draws,
            .cls = static_cast<int32_t>(id("[CLS]")),
            .sep = static_cast<int32_t>(id("[SEP]")),
            .pad = static_cast<int32_t>(id("[PAD]"))};
  }
  QuestionSet read(const std::string& content, const KeptPassages& keep) {
    write_file_atomically(folder_ / "questions.json", content);
    QuestionSet set{.name = "questions", .paths = {}, .examples = {}};
    problems_ = Problems();
    read_question_examples(folder_ / "questions.json", keep, set.examples, problems_);
    return set;
  }

  TestFolder folder_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  Problems problems_;
};

TEST_F(Questions, AreReadWithAsManyPassagesAsCanBeUsed) {
  const QuestionSet all = read(kQuestions, options(true, 2, 0).kept());
  EXPECT_TRUE(problems_.empty());
  ASSERT_EQ(all.examples.size(), 2u);
  EXPECT_EQ(all.examples[0].question, "and mask");
  EXPECT_EQ(all.examples[0].answer.text, "don the");
  EXPECT_EQ(all.examples[0].hard_negatives.size(), 3u);
  EXPECT_EQ(all.examples[0].negatives.size(), 0u) << "there are enough hard ones";
  EXPECT_EQ(all.examples[1].answer.title, "");
  EXPECT_EQ(all.examples[1].negatives.size(), 1u);
  const QuestionSet few = read(kQuestions, options(false, 1, 30).kept());
  EXPECT_EQ(few.examples[0].hard_negatives.size(), 1u);
  EXPECT_EQ(few.examples[0].negatives.size(), 1u);
  EXPECT_EQ(read(kQuestions, {}).examples[0].hard_negatives.size(), 0u);
}

TEST_F(Questions, WhatIsNoneIsNamed) {
  const auto problem_of = [&](const std::string& content) {
    read(content, {});
    return problems_.empty() ? "" : problems_.messages().front();
  };
  EXPECT_NE(problem_of("{}").find("expected a JSON list of questions"), std::string::npos);
  EXPECT_NE(problem_of("[{").find("expected a JSON list of questions"), std::string::npos);
  EXPECT_NE(problem_of("[]").find("holds no questions"), std::string::npos);
  EXPECT_NE(problem_of("[{\"question\": \"a\"}]").find("question 1: expected question, positive_ctxs"),
            std::string::npos);
  EXPECT_NE(problem_of("[{\"question\": \"?\", \"positive_ctxs\": []}]").find("question 1: the question is empty"),
            std::string::npos);
  EXPECT_NE(problem_of("[{\"question\": \"a\", \"positive_ctxs\": []}]").find("there is no passage that answers it"),
            std::string::npos);
}

TEST_F(Questions, SamplesAreUpstreams) {
  const QuestionSampleOptions samples = options(false, 2, 1);
  const QuestionDataset dataset(read(kQuestions, samples.kept()), samples, {}, *tokenizer_);
  ASSERT_EQ(dataset.size(), 2);
  Sample sample;
  dataset.read(0, sample);
  const int64_t cls = id("[CLS]"), sep = id("[SEP]"), pad = id("[PAD]"), the = id("the"), don = id("don");
  EXPECT_EQ(sample.arrays[Array::kQueryTokens], (Ids{cls, id("and"), id("mask"), sep, pad, pad, pad}));
  EXPECT_EQ(sample.arrays[Array::kQueryPadMask], (Ids{1, 1, 1, 1, 0, 0, 0}));
  // The answer, the others, the hard ones; what is too long is cut before its last SEP.
  const Ids wanted = {cls, the,       sep, don, the, sep, pad, cls, id("aus"),  sep, the, the, the, sep,
                      cls, id("and"), sep, don, sep, pad, pad, cls, id("mask"), sep, don, sep, pad, pad};
  EXPECT_EQ(sample.arrays[Array::kContextTokens], wanted);
  dataset.read(1, sample);
  EXPECT_EQ(Ids(sample.arrays[Array::kContextTokens].begin(), sample.arrays[Array::kContextTokens].begin() + 4),
            (Ids{cls, sep, id("aus"), sep}));
  const Ids& mask = sample.arrays[Array::kContextPadMask];
  EXPECT_EQ(std::accumulate(mask.begin() + 14, mask.end(), int64_t{0}), 0) << "passages that a question has not";
}

TEST_F(Questions, HardOnesAreDrawnByTheNumberOfTheSample) {
  const QuestionSampleOptions samples = options(true, 2, 0);
  const TaskEpochs epochs{.num_epochs = 20, .global_batch_size = 2};
  const QuestionSet set = read(kQuestions, samples.kept());
  const QuestionDataset dataset(set, samples, epochs, *tokenizer_), again(set, samples, epochs, *tokenizer_);
  ASSERT_EQ(dataset.size(), 40);
  std::set<std::pair<int64_t, int64_t>> drawn;
  Sample sample, other;
  for (int64_t number = 39; number >= 0; --number) {
    dataset.read(number, sample);
    again.read(number, other);
    EXPECT_EQ(sample.arrays, other.arrays);
    const Ids& tokens = sample.arrays[Array::kContextTokens];
    if (sample.arrays[Array::kNumber][0] == 0) drawn.emplace(tokens[8], tokens[15]);
    if (sample.arrays[Array::kNumber][0] == 1) {
      EXPECT_EQ(tokens[8], id("don")) << "from the others";
    }
  }
  EXPECT_GE(drawn.size(), 4u) << "different pairs of three, in both orders";
  for (const auto& [first, second] : drawn) EXPECT_NE(first, second);
}

TEST_F(Questions, TheFingerprintTellsTextsAndNegativesApart) {
  const QuestionSampleOptions one = options(true, 1, 0), two = options(true, 2, 0);
  const TaskEpochs epochs{.num_epochs = 1, .global_batch_size = 1};
  const auto text_of = [&](const QuestionSampleOptions& samples, const std::string& content) {
    return to_text(QuestionDataset(read(content, samples.kept()), samples, epochs, *tokenizer_).fingerprint(""));
  };
  std::string other = kQuestions;
  other.replace(other.find("mask?"), 5, "the");
  EXPECT_EQ(text_of(one, kQuestions), text_of(one, kQuestions));
  EXPECT_NE(text_of(one, kQuestions), text_of(two, kQuestions));
  EXPECT_NE(text_of(one, kQuestions), text_of(one, other));
}

}  // namespace question_dataset_test
}  // namespace espalier::data
