// A task file of lm_eval 0.4 as what is done with documents.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "eval/internal/document_rule.h"
#include "eval/lm_eval_task.h"

namespace espalier::eval {

enum class OutputKind { kMultipleChoice, kLogLikelihood, kRolling, kGenerate };

// How a document becomes a question, or an example with its answer.
struct TurnRules {
  std::optional<internal::DocumentRule> text, target, choice, prefix;
  std::string target_delimiter = " ", fewshot_delimiter = "\n\n";
  DocumentFunction process;
};

struct LmEvalRules {
  OutputKind output = OutputKind::kMultipleChoice;
  TurnRules tested, example;
  std::optional<internal::DocumentRule> description;
  DocumentFunction weights;  // of the perplexities, where the text that is read is not what counts
  bool takes_first = false;  // examples: the first n, not n drawn
  bool removes_tested = false;
  bool has_mutual_info = false;
  bool needs_choices = false;  // of the document's field 'choices'
  std::vector<Json> samples;   // examples that are in the file
};

}  // namespace espalier::eval
