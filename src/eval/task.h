// A task of an evaluation: what a document of its data asks of a model, and what the answers are worth.
//
// A task is a value in a visible list (bloom_2022.h); nothing here knows of models or tokenizers. The way of the data:
//   read_documents (document_files.h) -> prepare (prepared_task.h) -> requests -> any engine -> answers -> score.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/fields.h"
#include "eval/metric.h"

namespace espalier::eval {

enum class RequestKind {
  kLogLikelihood,  // of `continuation` after `context`
  kRolling,        // of the text `continuation`, each token once, with as much before it as a window holds
  kTokens,         // of `continuation_ids` after `context_ids`
  kGenerate,       // the text that the model writes after `context`
};

// How a text is written.
struct Generation {
  std::vector<std::string> until;  // it ends before the first of these
  int64_t max_tokens = 256;
  double temperature = 0;  // 0: the likeliest token each time
  double top_p = 0;        // 0: of all tokens, as with top_k
  int64_t top_k = 0;
  Json arguments;  // as the task file has them, for logs
};

struct Request {
  RequestKind kind = RequestKind::kLogLikelihood;
  std::string context, continuation;
  std::vector<int32_t> context_ids, continuation_ids;
  std::shared_ptr<const Generation> generation = nullptr;  // of kGenerate
};

struct Answer {
  double log_likelihood = 0;  // natural, summed over the tokens of the continuation
  bool is_greedy = false;     // each of them was the most likely
  std::string text = "";      // of kGenerate
};

// A document as a model is asked about it.
struct Question {
  std::vector<Request> requests;
  std::vector<std::string> choices;        // as they count for acc_norm: without the blank before them
  size_t gold = 0;                         // the right choice, or the label
  std::vector<int64_t> golds;              // of lm_eval 0.4, where several may be right, or none that is a choice
  std::string target;                      // what a right continuation is
  double reference = 0;                    // of metrics that weigh: words, bytes, tokens
  double bytes = 0;                        // where there are words too
  std::string group, member;               // of metrics that see several documents as one question
  std::vector<std::string> targets;        // texts any of which is right, where one is generated
  std::vector<std::string> field_choices;  // the document's field 'choices', where a filter looks for them
};

// The texts that a question was answered with as the one that is scored.
struct AnswerFilter {
  std::string name;
  std::function<std::string(const Question&, std::vector<std::string> texts)> apply;
  bool needs_choices = false;  // Question::field_choices
};

struct Metric {
  std::string name;
  bool higher_is_better = true;
  std::function<Item(const Question&, std::span<const Answer>)> score;
  Aggregation aggregation;
  std::string filter = "none";  // the name that lm_eval 0.4 gives it after a comma
};

// What a task reads, and where to get it.
struct TaskData {
  std::string data_set;                 // on the Hugging Face hub: "super_glue boolq"
  std::string split;                    // "validation"
  int64_t num_documents = 0;            // behind the published numbers; 0: not known
  std::vector<std::string> fields;      // of a document, as read ("choices.text"); others are left out while reading
  std::vector<std::string> files = {};  // names under which people have it, besides TASK.jsonl and the like
};

// How context and continuation become ids.
enum class Tokenization { kSeparate, kJoint };
const char* name_of(Tokenization tokenization);

struct Task {
  std::string name;
  Json version = 0;  // as its own files say it: 1, or 1.0
  TaskData data;
  std::function<Question(const Fields&)> ask;
  std::vector<Metric> metrics;
  // Documents that several records make; none: a record is a document.
  std::function<std::vector<Json>(std::vector<Json>)> gather = nullptr;
  bool is_shuffled = false;  // asked in the order of Python's Random(42).shuffle, else in that of the file
  // Why the first documents alone would give wrong values; empty: they do not.
  std::string no_limit_because = "";
  std::string alias = "";  // for tables of results
  int64_t num_fewshot = 0;
  std::shared_ptr<const Generation> generation = nullptr;  // of tasks whose answers are texts
  int64_t repeats = 1;                                     // texts for each document
  std::vector<AnswerFilter> filters = {};                  // of such texts
  std::string set = "";                                    // whose prompts and numbers these are: "bloom-2022"
  Tokenization tokenization = Tokenization::kSeparate;
};

}  // namespace espalier::eval
