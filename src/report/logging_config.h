// How often, where and what a run reports; the fields are named as their options.
#pragma once

#include <cstdint>
#include <string>

namespace espalier::report {

struct LoggingConfig {
  int64_t log_interval = 100, tensorboard_log_interval = 1;
  std::string tensorboard_dir;
  bool log_params_norm = false, log_num_zeros_in_grad = false;
  bool log_timers_to_tensorboard = false, log_batch_size_to_tensorboard = false;
  bool log_learning_rate_to_tensorboard = true, log_loss_scale_to_tensorboard = true;
  bool log_validation_ppl_to_tensorboard = false;
  std::string log_level = "info";
};

}  // namespace espalier::report
