// One run in one layout, measured so that layouts can be compared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/options.h"
#include "config/run_config.h"
#include "dist/grid.h"

namespace espalier::train {

struct ParityRun {
  // Belongs to the model, not to the layout: the other runs are to be given this one's (--pad-vocab-size-to).
  int64_t padded_vocab_size = 0;
  uint64_t weights_hash = 0;  // of the first weights, element by element of the global tensors: equal in every layout
  uint64_t sample_hash = 0;   // of all samples of all steps
  std::vector<double> losses, grad_norms;        // by step
  double params_norm = 0;                        // at the end
  std::vector<std::string> replica_differences;  // at the end: what ranks should hold equal and do not
};

// Called by all ranks of the grid. Neither saves nor evaluates.
ParityRun run_for_parity(const config::RunConfig& config, const OptionTable& table, int64_t num_steps,
                         const dist::Grid& grid);

// As text, to come back from a forked rank.
std::string to_text(const ParityRun& run);
ParityRun parity_run_from_text(const std::string& text);

struct ParityComparison {
  bool weights_equal = false, samples_equal = false;
  double first_loss = 0, first_norm = 0;  // relative differences at the first step
  double largest_loss = 0;                // over all steps
  double params_norm = 0;
  size_t num_replica_differences = 0;
};
ParityComparison compare(const ParityRun& run, const ParityRun& reference);

// What docs/numerics.md promises between layouts in fp32. `curve`: over 50 steps.
struct ParityTolerance {
  double first_loss = 1e-6, first_norm = 1e-5, curve = 1e-4;
};
// In bf16 and fp16 rounding differs by layout, a hundred thousand times as much: there only what must be equal is
// checked.
ParityTolerance parity_tolerance(plan::Precision precision);
bool within(const ParityComparison& comparison, const ParityTolerance& tolerance);

}  // namespace espalier::train
