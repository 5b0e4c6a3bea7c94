// A run whose weights are not numbers any more ends, and does not leave a checkpoint that looks like a good one. Nor is
// one made of a step without a finite loss and norm.
//
// Which operation such a loss comes from, and of which document: the first step in a row whose loss is not finite is
// computed once more before its update, with every operation looked at.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/error.h"
#include "report/run_log.h"
#include "report/step_report.h"
#include "train/job.h"
#include "train/observer.h"
#include "train/spike_record.h"

namespace espalier::train {

// Megatron's code for "failed on result validation".
inline constexpr ExitCode kNotFinite{17};

// Collective; all ranks decide alike.
class FiniteCheck : public Observer {
 public:
  // All outlive it. `spikes` sees each step before this does.
  FiniteCheck(Job& job, report::RunLog& log, const SpikeRecord& spikes);
  ~FiniteCheck() override;

  // Reports a loss that is NaN or infinite on stderr, and looks at the weights where the step gives reason to.
  void after_step(const report::StepReport& report) override;
  // UserError (kNotFinite) when weights or moments hold NaN or infinity.
  void before_save() override;
  // Whether the last step that was trained had finite losses and a finite norm: else its state is not one to save.
  bool is_sound() const { return num_in_a_row_ == 0; }
  // The run is about to end with this state: UserError (kNotFinite) where it is not sound.
  void before_end();

 private:
  void check();
  std::string advice() const;
  // Before the update of a step whose loss is not finite; collective.
  void find_origin(const std::function<void()>& again);
  // Of a step with a finite loss and a norm that is not; collective.
  std::string where_gradients_begin();
  std::string samples_of(const report::StepReport& report) const;

  Job& job_;
  report::RunLog& log_;
  const SpikeRecord& spikes_;
  std::string origin_;        // of the loss of the step that is under way
  int64_t num_in_a_row_ = 0;  // steps without a finite loss or norm
  // The first of them: its number, and what was wrong with it.
  struct Bad {
    int64_t step = 0;
    std::string what;
  };
  std::optional<Bad> first_bad_;
};

// The first of the tensors of this rank that is not finite, by name; empty if all are.
std::string tensor_not_finite(const JobState& state);

}  // namespace espalier::train
