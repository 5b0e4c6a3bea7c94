// The parts of resolve(): each derives what it names and reports what is wrong with it.
#pragma once

#include <string>

#include "config/family.h"
#include "config/run_config.h"
#include "plan/near_numbers.h"

namespace espalier::config::internal {

using plan::divisors_near;
using plan::multiples_near;

class Resolver {
 public:
  // `is_complete`: every required option was given, and every word could be read.
  Resolver(RunConfig& config, const OptionTable& table, bool is_complete, Problems& problems)
      : config_(config), table_(table), is_complete_(is_complete), problems_(problems) {}

  void resolve_length();
  void resolve_model();
  void resolve_precision();
  void resolve_fp8();
  void resolve_grid();
  void resolve_pipeline();
  void resolve_zero();
  void check_canonical();
  void check_attention_backend();
  void resolve_batch();
  void resolve_num_steps();
  void check_warmup_tokens();
  void resolve_skips();
  void resolve_schedule();
  void resolve_recompute();
  void resolve_data();
  void resolve_stages();
  void resolve_checkpoint();
  void resolve_run();
  void resolve_optimizer();

 private:
  std::string origin(const char* name) const { return table_.origin(name); }
  int64_t num_layers() const { return config_.family->num_layers(config_.model); }
  // Whether model_spec() may be asked: with a size missing, or one that does not divide another, there is no model.
  bool has_model() const { return is_complete_ && problems_.empty() && num_layers() > 0; }
  bool given(const char* name) const { return table_.find(name)->given(); }
  // Given, and not only with the value that it has anyway, as in a saved configuration.
  bool is_said(const char* name) const {
    return given(name) && table_.find(name)->values() != table_.find(name)->default_values();
  }
  // Given there, with whatever value.
  bool is_of_command_line(const char* name) const {
    return given(name) && table_.find(name)->source() == "command line";
  }
  void check_qk_clip(const spec::OptimizerKind& kind);
  void check_clipped_layers(const std::vector<spec::ParamSpec>& params);
  void check_sequence_division();
  void check_accumulation();
  void check_chunks();
  void check_partition();
  void resolve_length_stages();
  void end_by_truncated_tokens();
  void check_truncated_length(const std::string& where, const data::StageStart& start, int64_t length);
  void check_ramp(int64_t batch, int64_t samples_at_once);
  void check_exclusive_schedule();
  void check_decay_style();
  void resolve_phases();
  void resolve_weight_decay();

  RunConfig& config_;
  const OptionTable& table_;
  const bool is_complete_;
  Problems& problems_;
  bool ramp_is_good_ = true;
};

}  // namespace espalier::config::internal
