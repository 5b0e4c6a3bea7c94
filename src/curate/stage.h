// The steps between two passes, over blocks of documents.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "curate/digests.h"
#include "curate/input.h"
#include "curate/step.h"
#include "curate/tally.h"

namespace espalier::curate {

// What became of a document that is not in the output.
struct FateRecord {
  int64_t number = 0;
  int step = 0;  // index into the recipe's steps; -1: the record was no document
  std::string reason;
  std::optional<double> value, threshold;
};

// One block of documents, after a stage.
struct BlockResult {
  int64_t input_bytes = 0, text_bytes = 0;
  int64_t next_number = 0;  // after the block
  std::vector<Document> documents;
  Digests digests;  // of the documents, where the stage ends with a pass
  std::vector<FateRecord> fates;
  InputTally input;
  LanguageTally languages;
  std::vector<StepTally> tallies;  // of each step of the stage
};

class Stage {
 public:
  // `decides`, if there is one, comes before the steps. `digests`: the pass that comes after them.
  // `measures`: keeps what the steps measure of each document, for percentiles.
  Stage(int first_step, const Pass* decides, std::vector<const Step*> steps, const Pass* digests, bool measures)
      : first_step_(first_step), decides_(decides), steps_(std::move(steps)), digests_(digests), measures_(measures) {}

  int first_step() const { return first_step_; }
  size_t num_steps() const { return steps_.size() + (decides_ != nullptr); }
  const Pass* digests() const { return digests_; }

  // Any thread.
  BlockResult process(const std::vector<InputSource>& sources, const RawBlock& block) const;
  BlockResult process(std::vector<Document> documents, int64_t next_number) const;

 private:
  BlockResult empty_result() const;
  void process(Document&& document, size_t step, BlockResult& result) const;

  int first_step_;
  const Pass* decides_;
  std::vector<const Step*> steps_;
  const Pass* digests_;
  bool measures_;
};

}  // namespace espalier::curate
