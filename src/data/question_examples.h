// Questions with a passage that answers each and others that do not, as DPR publishes them (biencoder-nq-train.json): a
// JSON list of {"question", "answers", "positive_ctxs", "hard_negative_ctxs", "negative_ctxs"}, of whose contexts title
// and text are read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace espalier::data {

struct PassageText {
  std::string title, text;
};

struct QuestionExample {
  std::string question;  // without a question mark at its end, as upstream
  PassageText answer;    // the first of positive_ctxs
  std::vector<PassageText> hard_negatives, negatives;
};

// How many of a question's passages are kept, the first ones; the files have hundreds. Others of the negatives are kept
// as far as there are too few hard ones.
struct KeptPassages {
  size_t hard_negatives = 0, negatives = 0;
  bool negatives_fill_up = false;  // those of `negatives` that hard ones leave room for
};

struct QuestionSet {
  std::string name;  // of the set in messages and metrics
  std::vector<std::string> paths;
  std::vector<QuestionExample> examples;
};

// Adds what is wrong, with file and number of the question; of one file no more than the first few. The list is read
// piece by piece; the file may be compressed.
void read_question_examples(const std::string& path, const KeptPassages& keep, std::vector<QuestionExample>& examples,
                            Problems& problems);

}  // namespace espalier::data
