// Requests for an engine that is not ours, and its answers: JSONL, a request a line.
//
//   {"task": "piqa", "doc_id": 0, "index": 1, "type": "loglikelihood", "context": "Question: ...", "continuation": "
//   b"}
//   {"task": "piqa", "doc_id": 0, "index": 1, "log_likelihood": -7.25, "is_greedy": false}
//
// A request for a text has "context", "until", "max_gen_toks", "do_sample" and, where it is true, "temperature",
// "top_p" and "top_k"; its answer is "text", with or without the first of "until" and what follows it. A rolling
// request has "text" in place of context and continuation; where a tokenizer is given, "rows" holds the ids, each
// {"ids": [...], "num_predicted": n}: the answer is the sum of the log-likelihoods of the last n ids of each row.
// Answers may come in any order, with additional fields; a request line with the two fields added is one.
#pragma once

#include <string>
#include <vector>

#include "eval/prepared_task.h"
#include "eval/token_requests.h"

namespace espalier::eval {

// One task's lines, each with its end. `encoder`: null where there is no tokenizer.
std::string request_lines(const PreparedTask& prepared, RequestEncoder* encoder);

// The answers to every request of `tasks`, task by task and question by question. Lines that answer nothing that was
// asked, answer twice or hold another context or continuation than was asked, and requests without an answer are named
// together (kBadData), the first of each.
std::vector<std::vector<Answers>> read_answers(const std::string& file, const std::vector<PreparedTask>& tasks);

}  // namespace espalier::eval
