#include "eval/detokenizers.h"
#include "eval/internal/bloom_tasks.h"
#include "eval/scores.h"

namespace espalier::eval::internal {
namespace {

// Two classes, of which the label names one. `first` is the class that the first choice represents.
Question ask_two(const std::string& context, std::vector<std::string> choices, int64_t label, int64_t first) {
  return ask_choices(context, std::move(choices), label == first ? 0 : 1);
}

Question mrpc(const Fields& document) {
  return ask_two("Sentence 1: " + detokenize_general(document.text("sentence1")) +
                     "\nSentence 2: " + detokenize_general(document.text("sentence2")) +
                     "\nQuestion: Do both sentences mean the same thing?\nAnswer:",
                 {"yes", "no"}, document.label("label", {"not_equivalent", "equivalent"}), 1);
}

Question qqp(const Fields& document) {
  return ask_two("Question 1: " + document.text("question1") + "\nQuestion 2: " + document.text("question2") +
                     "\nQuestion: Do both questions ask the same thing?\nAnswer:",
                 {"yes", "no"}, document.label("label", {"not_duplicate", "duplicate"}), 1);
}

Question qnli(const Fields& document) {
  return ask_two(document.text("question") + "\n" + document.text("sentence") +
                     "\nQuestion: Does this response answer the question?\nAnswer:",
                 {"yes", "no"}, document.label("label", {"entailment", "not_entailment"}), 0);
}

std::string inference(const Fields& document) {
  return document.text("sentence1") + "\nQuestion: " + document.text("sentence2") + " True or False?\nAnswer:";
}

Question rte(const Fields& document) {
  return ask_two(inference(document), {"True", "False"}, document.label("label", {"entailment", "not_entailment"}), 0);
}

Question wnli(const Fields& document) {
  return ask_two(inference(document), {"True", "False"}, document.label("label", {"not_entailment", "entailment"}), 1);
}

Question sst(const Fields& document) {
  return ask_two(
      detokenize_general(document.text("sentence")) + "\nQuestion: Is this sentence positive or negative?\nAnswer:",
      {"positive", "negative"}, document.label("label", {"negative", "positive"}), 1);
}

}  // namespace

std::vector<Task> glue_tasks() {
  const std::vector<std::string> sentences = {"sentence1", "sentence2", "label"};
  const std::vector<Metric> acc_and_f1 = {{"acc", true, score_first_of_two, mean()},
                                          {"f1", true, judge_first_of_two, f1()}};
  return {
      {"mrpc", 0, {"glue mrpc", "validation", 408, sentences}, mrpc, acc_and_f1},
      {"qqp", 0, {"glue qqp", "validation", 40430, {"question1", "question2", "label"}}, qqp, acc_and_f1},
      {"sst", 0, {"glue sst2", "validation", 872, {"sentence", "label"}}, sst, acc_of_two()},
      {"wnli", 1, {"glue wnli", "validation", 71, sentences}, wnli, acc_of_two()},
      // The class that the second choice represents is the one that must be more likely here.
      {"qnli", 0, {"glue qnli", "validation", 5463, {"question", "sentence", "label"}}, qnli, acc()},
      {"rte", 0, {"glue rte", "validation", 277, sentences}, rte, acc()},
  };
}

}  // namespace espalier::eval::internal
