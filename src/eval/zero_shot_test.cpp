#include "eval/zero_shot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"

namespace espalier::eval {
namespace zero_shot_test {

namespace fs = std::filesystem;

// Upstream's windows, as its dataset makes and its loss masks them: from i * stride sequence + 1 ids, padded; past the
// first, only the last `stride` places count; as many as cover all targets.
std::map<int64_t, int64_t> context_by_target(int64_t num_ids, int64_t length, int64_t stride) {
  const int64_t targets = num_ids - 1;
  const int64_t windows = std::max<int64_t>((std::max<int64_t>(targets - stride, 0) + stride - 1) / stride + 1, 1);
  std::map<int64_t, int64_t> contexts;  // of each id that counts, how many ids are before it in its window
  for (int64_t i = 0; i < windows; ++i)
    for (int64_t place = 0; place < length; ++place) {
      const int64_t id = i * stride + place + 1;
      const bool counts = id < num_ids && (i == 0 || stride == length || place >= length - stride);
      if (counts) {
        EXPECT_TRUE(contexts.emplace(id, place + 1).second) << id;
      }
    }
  return contexts;
}

TEST(ZeroShot, WindowsCountEveryIdOnceWithUpstreamsContext) {
  for (const auto& [num_ids, length, stride] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{{2, 7, 3},
                                                                                                  {8, 7, 3},
                                                                                                  {9, 7, 3},
                                                                                                  {33, 7, 3},
                                                                                                  {33, 7, 7},
                                                                                                  {33, 7, 1},
                                                                                                  {34, 33, 32},
                                                                                                  {100, 33, 32},
                                                                                                  {3, 1, 1}}) {
    std::map<int64_t, int64_t> contexts;
    for (const StreamWindow& window : overlapping_windows(num_ids, length, stride)) {
      EXPECT_LE(window.end - window.begin, length + 1);
      for (int64_t id = window.end - window.num_predicted; id < window.end; ++id)
        EXPECT_TRUE(contexts.emplace(id, id - window.begin).second) << id;
    }
    EXPECT_EQ(contexts, context_by_target(num_ids, length, stride)) << num_ids << " " << length << " " << stride;
    EXPECT_EQ(static_cast<int64_t>(contexts.size()), num_ids - 1);
  }
}

TEST(ZeroShot, TheDetokenizerGoesByThePath) {
  EXPECT_EQ(detokenizer_for("data/ptb/wiki.txt"), Detokenizer::kPennTreebank);
  EXPECT_EQ(detokenizer_for("wikitext-103/test"), Detokenizer::kWikitext);
  EXPECT_EQ(detokenizer_for("lambada.jsonl"), Detokenizer::kNone);
  EXPECT_THROW(detokenizer_for("corpus.txt"), UserError);
}

class ZeroShotFiles : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    options_.tokenizer = tokenizer_.get();
    options_.sequence_length = 7;
    options_.overlapping_eval = 3;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string written(const std::string& name, const std::string& content) const {
    write_file_atomically(folder_ / name, content);
    return folder_ / name;
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / concat("espalier_zero_shot_", ::getpid());
  const std::unique_ptr<text::Tokenizer> tokenizer_ = text::open_tokenizer("tests/data/gpt2-tiny");
  ZeroShotOptions options_;
};

TEST_F(ZeroShotFiles, ACorpusIsMeasuredPerWord) {
  const std::string raw = " = A day = \n \n It rained , and rained .  The end was near\n";
  const PreparedTask prepared = prepare_zero_shot(kWikitext103, written("wiki.test.tokens", raw), options_);
  // Stripped and split at single blanks: "=", "A", "day", "=", "\n", "\n", "It", "rained", ",", "and", "rained", ".",
  // "", "The", "end", "was", "near".
  const double num_words = 17;
  const std::vector<int32_t> ids = tokenizer_->encode(" = A day =\n\nIt rained, and rained.  The end was near\n");
  const auto num_targets = static_cast<double>(ids.size() - 1);
  std::vector<Answers> answers;
  std::vector<int32_t> seen = {ids[0]};
  double sum = 0;
  for (const Question& question : prepared.questions) {
    ASSERT_EQ(question.requests.size(), 1u);
    const auto& predicted = question.requests[0].continuation_ids;
    seen.insert(seen.end(), predicted.begin(), predicted.end());
    answers.push_back({{-0.25 * static_cast<double>(predicted.size()) - 1, false}});
    sum -= answers.back()[0].log_likelihood;
  }
  EXPECT_EQ(seen, ids);
  const TaskResult result = score(prepared, answers, 2);
  EXPECT_DOUBLE_EQ(result.metrics[0].value, sum / num_targets);
  EXPECT_DOUBLE_EQ(result.metrics[1].value, std::exp(sum / num_targets));
  EXPECT_DOUBLE_EQ(result.metrics[2].value, std::exp(sum / (num_words - 1)));
  EXPECT_DOUBLE_EQ(result.metrics[3].value, num_targets / (num_words - 1));
}

// The text of upstream's formats, with values that can be read off.
TEST_F(ZeroShotFiles, TheReportIsUpstreams) {
  PreparedTask prepared = prepare_zero_shot(kWikitext103, written("wiki", "a b c d e f g h i"), options_);
  TaskResult result = score(prepared, std::vector<Answers>(prepared.questions.size(), {Answer()}), 2);
  const double values[] = {2.5, 12.1824939607, 4.85165195410e8, 1.25};
  for (size_t i = 0; i < 4; ++i) result.metrics[i].value = values[i];
  const std::string line =
      " validation results on WIKITEXT103 | avg loss: 2.5000E+00 | ppl: 1.2182E+01 | adjusted ppl: "
      "4.8517E+08 | token ratio: 1.25 |";
  const std::string dashes(line.size() + 1, '-');
  EXPECT_EQ(zero_shot_report(result), dashes + "\n" + line + "\n" + dashes + "\n");

  prepared = prepare_zero_shot(kZeroShotLambada, written("l", "{\"text\": \"a b\"}\n{\"text\": \"c d\"}\n"), options_);
  result = score(prepared, {{{-1, true}}, {{-1, false}}}, 2);
  EXPECT_NE(
      zero_shot_report(result).find("\n validation results on LAMBADA | number correct: 1.0000E+00 | total examples: "
                                    "2.0000E+00 | avg accuracy: 5.0000E-01\n"),
      std::string::npos)
      << zero_shot_report(result);
}

TEST_F(ZeroShotFiles, AVeryBadModelHasAPerplexity) {
  const PreparedTask prepared = prepare_zero_shot(kWikitext103, written("wiki", "a b c d e f g h i"), options_);
  const TaskResult result = score(prepared, std::vector<Answers>(prepared.questions.size(), {{-1e6, false}}), 2);
  EXPECT_EQ(result.metrics[1].value, std::exp(20.0));
  EXPECT_EQ(result.metrics[2].value, std::exp(20.0));
}

TEST_F(ZeroShotFiles, LambadaPredictsTheLastIdOrTheLastWord) {
  const std::string text = "the  dragon saw the unbelievable";
  const std::string file = written("lambada", concat("{\"text\": \"", text, "\"}\n"));
  const std::vector<int32_t> ids = tokenizer_->encode(text);
  const Request loose = prepare_zero_shot(kZeroShotLambada, file, options_).questions[0].requests[0];
  EXPECT_EQ(loose.continuation_ids, std::vector<int32_t>{ids.back()});
  EXPECT_EQ(loose.context_ids, std::vector<int32_t>(ids.begin(), ids.end() - 1));
  options_.strict_lambada = true;
  const Request strict = prepare_zero_shot(kZeroShotLambada, file, options_).questions[0].requests[0];
  EXPECT_EQ(strict.continuation_ids, tokenizer_->encode(" unbelievable"));
  EXPECT_GT(strict.continuation_ids.size(), 1u);
  EXPECT_EQ(strict.context_ids, tokenizer_->encode("the  dragon saw the"));
}

TEST_F(ZeroShotFiles, TooLittleTextIsRefused) {
  const auto refusal = [&](const char* task, const std::string& file) {
    try {
      prepare_zero_shot(task, file, options_);
    } catch (const UserError& error) {
      return std::string(error.what()).substr(folder_.string().size());
    }
    return std::string("no error");
  };
  EXPECT_NE(refusal(kWikitext103, written("wiki", "a")).find("has 1 word and 1 id; a perplexity needs two of each"),
            std::string::npos);
  EXPECT_NE(refusal(kWikitext103, written("wiki", "a \xff")).find("byte 3 is not UTF-8"), std::string::npos);
  EXPECT_NE(refusal(kZeroShotLambada, written("l", "{\"text\": \"a\"}\n")).find("fewer than two ids"),
            std::string::npos);
  options_.strict_lambada = true;
  EXPECT_NE(refusal(kZeroShotLambada, written("l", "{\"text\": \"a\"}\n")).find("fewer than two words"),
            std::string::npos);
}

}  // namespace zero_shot_test
}  // namespace espalier::eval
