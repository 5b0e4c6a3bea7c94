// The parts of resolve(): each derives what it names and reports what is wrong with it.
#pragma once

#include <string>

#include "plan/run_config.h"

namespace espalier::plan::internal {

class Resolver {
 public:
  Resolver(RunConfig& config, const OptionTable& table, Problems& problems)
      : config_(config), table_(table), problems_(problems) {}

  void resolve_positions();
  void resolve_length();
  void resolve_model();
  void resolve_precision();
  void resolve_grid();
  void resolve_pipeline();
  void resolve_zero();
  void resolve_batch();
  void resolve_num_steps();
  void check_warmup_tokens();
  void resolve_skips();
  void resolve_schedule();
  void resolve_recompute();
  void resolve_data();
  void resolve_checkpoint();
  void resolve_run();

 private:
  std::string origin(const char* name) const { return table_.origin(name); }
  bool given(const char* name) const { return table_.find(name)->given(); }
  void resolve_groups();
  void resolve_activation();
  void resolve_rotary();
  void resolve_rope_spellings();
  void check_rope_scaling();
  void read_factors(const char* name, const std::vector<std::string>& words, int64_t expected,
                    std::vector<double>& factors);
  void resolve_window();
  void check_division();
  void check_accumulation();
  void check_chunks();
  void check_partition();
  void check_ramp(int64_t batch, int64_t samples_at_once);
  void check_exclusive_schedule();

  RunConfig& config_;
  const OptionTable& table_;
  Problems& problems_;
  bool ramp_is_good_ = true;
};

// "16 or 24": the multiples of `of` around `value`.
std::string multiples_near(int64_t value, int64_t of);
// "8 or 16": the divisors of `number` around `value`.
std::string divisors_near(int64_t value, int64_t number);

}  // namespace espalier::plan::internal
