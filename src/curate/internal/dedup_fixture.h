// For the tests of passes: one of them over texts in memory.
#pragma once

#include "base/pending_file.h"
#include "curate/internal/run_fixture.h"

namespace espalier::curate::test {

struct PassOutcome {
  std::vector<std::string> texts;
  std::vector<int64_t> numbers;
  StepTally tally;
  nlohmann::ordered_json facts;
};

inline PassOutcome run_pass(const std::string& name, const std::string& toml, const std::string& input,
                            const std::string& folder, int workers = 2, int64_t memory_bytes = int64_t{64} << 20) {
  RunPlan plan;
  plan.sources = {{.files = {input}, .text_key = "text"}};
  plan.steps.push_back({name, maker_of(name, toml)});
  plan.workers = workers;
  plan.memory_bytes = memory_bytes;
  plan.work_folder = folder;
  PassOutcome outcome;
  const RunResult result = run(plan, [&](Document&& document) {
    outcome.texts.push_back(document.text);
    outcome.numbers.push_back(document.number);
  });
  outcome.tally = result.steps.front();
  outcome.facts = result.facts.front();
  return outcome;
}

inline std::string to_jsonl(const std::vector<std::string>& texts) {
  std::string lines;
  for (const std::string& text : texts) lines += nlohmann::json{{"text", text}}.dump() + "\n";
  return lines;
}

inline PassOutcome run_pass_over(const std::string& name, const std::string& toml,
                                 const std::vector<std::string>& texts, int workers = 2,
                                 int64_t memory_bytes = int64_t{64} << 20) {
  TestFolder folder;
  write_text(folder / "in", to_jsonl(texts));
  return run_pass(name, toml, folder / "in", folder / "work", workers, memory_bytes);
}

}  // namespace espalier::curate::test
