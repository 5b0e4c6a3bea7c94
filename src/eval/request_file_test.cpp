#include "eval/request_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "eval/bloom_2022.h"

namespace espalier::eval {
namespace request_file_test {

namespace fs = std::filesystem;

PreparedTask prepared_piqa() {
  PreparedTask prepared;
  for (const Task& task : bloom_2022_tasks())
    if (task.name == "piqa") prepared.task = task;
  for (const char* goal : {"caf\u00e9", "\"b\""}) {
    prepared.documents.push_back({{{"goal", goal}, {"sol1", "x"}, {"sol2", "y"}, {"label", 1}}, "piqa.jsonl:1"});
    prepared.questions.push_back(prepared.task.ask(Fields(prepared.documents.back().content, "")));
  }
  prepared.num_available = 2;
  return prepared;
}

TEST(RequestFile, ALineIsARequest) {
  EXPECT_EQ(
      request_lines(prepared_piqa(), nullptr),
      R"({"task":"piqa","doc_id":0,"index":0,"type":"loglikelihood","context":"Question: café\nAnswer:","continuation":" x"})"
      "\n"
      R"({"task":"piqa","doc_id":0,"index":1,"type":"loglikelihood","context":"Question: café\nAnswer:","continuation":" y"})"
      "\n"
      R"({"task":"piqa","doc_id":1,"index":0,"type":"loglikelihood","context":"Question: \"b\"\nAnswer:","continuation":" x"})"
      "\n"
      R"({"task":"piqa","doc_id":1,"index":1,"type":"loglikelihood","context":"Question: \"b\"\nAnswer:","continuation":" y"})"
      "\n");
}

TEST(RequestFile, WithATokenizerALineHasItsIds) {
  const auto tokenizer = text::open_tokenizer("tests/data/gpt2-tiny");
  PreparedTask prepared;
  prepared.task.name = "wiki";
  prepared.documents.resize(1);
  prepared.questions.resize(1);
  prepared.questions[0].requests = {{.kind = RequestKind::kTokens, .context_ids = {5, 6}, .continuation_ids = {7}},
                                    {.kind = RequestKind::kRolling, .continuation = "Hello"}};
  RequestEncoder encoder(*tokenizer, Tokenization::kSeparate, 4999, 2);
  // By GPT-2's vocabulary: 39 is H, 695 ell, 78 o.
  EXPECT_EQ(
      request_lines(prepared, &encoder),
      R"({"task":"wiki","doc_id":0,"index":0,"type":"loglikelihood_tokens","rows":[{"ids":[5,6,7],"num_predicted":1}]})"
      "\n"
      R"({"task":"wiki","doc_id":0,"index":1,"type":"loglikelihood_rolling","text":"Hello","rows":[{"ids":[4999,39,695],"num_predicted":2},{"ids":[39,695,78],"num_predicted":1}]})"
      "\n");
}

std::string answers_refusal(const std::string& lines) {
  const fs::path file = fs::path(testing::TempDir()) / concat("espalier_answers_", ::getpid());
  write_file_atomically(file, lines);
  std::string message = "no error";
  try {
    read_answers(file, {prepared_piqa()});
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadData);
    message = error.what();
    for (size_t at; (at = message.find(file.string())) != std::string::npos;)
      message.replace(at, file.string().size(), "F");
  }
  fs::remove(file);
  return message;
}

TEST(RequestFile, AnswersComeInAnyOrderWithOtherFieldsBeside) {
  const fs::path file = fs::path(testing::TempDir()) / concat("espalier_answers_", ::getpid());
  write_file_atomically(file,
                        R"({"task": "piqa", "doc_id": 1, "index": 1, "log_likelihood": -4, "is_greedy": false}
{"task": "piqa", "doc_id": 0, "index": 0, "log_likelihood": -1.5, "is_greedy": true, "continuation": " x", "ms": 3}

{"task": "piqa", "doc_id": 1, "index": 0, "log_likelihood": -3.5, "is_greedy": false}
{"task": "piqa", "doc_id": 0, "index": 1, "log_likelihood": "-Infinity", "is_greedy": false})");
  const std::vector<std::vector<Answers>> answers = read_answers(file, {prepared_piqa()});
  fs::remove(file);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0][0][0].log_likelihood, -1.5);
  EXPECT_TRUE(answers[0][0][0].is_greedy);
  EXPECT_EQ(answers[0][0][1].log_likelihood, -INFINITY);
  EXPECT_EQ(answers[0][1][0].log_likelihood, -3.5);
  EXPECT_EQ(answers[0][1][1].log_likelihood, -4);
}

TEST(RequestFile, WrongAnswersAreNamedTogether) {
  EXPECT_EQ(
      answers_refusal(R"({"task": "piqa", "doc_id": 0, "index": 0, "log_likelihood": -1, "is_greedy": true}
{"task": "piqa", "doc_id": 0, "index": 0, "log_likelihood": -1, "is_greedy": true}
{"task": "piqa", "doc_id": 0, "index": 1, "log_likelihood": -1, "is_greedy": true, "continuation": " z"}
{"task": "piqa", "doc_id": 2, "index": 0, "log_likelihood": -1, "is_greedy": true}
{"task": "wic", "doc_id": 0, "index": 0, "log_likelihood": -1, "is_greedy": true}
{"task": "piqa", "doc_id": 1, "index": 0, "log_likelihood": null, "is_greedy": true}
)"),
      "5 problems:\n"
      "  - F: lines that answer a second time: 1; the first: line 2\n"
      "  - F: lines that answer what was not requested: 2; the first: line 4, task piqa, doc_id 2, index 0\n"
      "  - F: lines that are not answers: 1; the first: line 6: field 'log_likelihood' is null; it should be a number\n"
      "  - F: lines with a text other than the one requested: 1; the first: line 3, field 'continuation' of task piqa, "
      "doc_id 0, "
      "index 1\n"
      "  - F: requests without an answer: 1; the first: task piqa, doc_id 1, index 1");
  EXPECT_EQ(answers_refusal(""), "F: requests without an answer: 4; the first: task piqa, doc_id 0, index 0");
}

}  // namespace request_file_test
}  // namespace espalier::eval
