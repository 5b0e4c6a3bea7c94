// What a run says of its optimizer. Fields are named as their options.
#pragma once

#include <cstdint>

namespace espalier::spec {

enum class OptimizerType : int;  // spec/optimizer_element.h; 0 is AdamW
enum class StateType : int;      // spec/optimizer_element.h; 0 is fp32
struct OptimizerKind;            // spec/optimizer.h
const OptimizerKind& adamw();

// Muon's: by what the orthogonal direction of a matrix of `rows` x `columns` is multiplied, as Megatron-LM names it.
enum class MuonScale {
  kSpectral,      // sqrt(max(rows, columns)): elements of root mean square 1
  kShapeScaling,  // sqrt(max(1, rows / columns)): Jordan's
  kUnitRmsNorm,   // sqrt(rows / columns)
};
// The polynomials of its iteration.
enum class MuonCoefficients { kSimple, kQuintic };

struct OptimizerSettings {
  OptimizerType optimizer{};
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_eps = 1e-8;
  StateType exp_avg_dtype{}, exp_avg_sq_dtype{};  // of first and of second moments
  double sgd_momentum = 0.9;
  double lion_beta1 = 0.95, lion_beta2 = 0.98;
  double sophiag_beta1 = 0.965, sophiag_beta2 = 0.99, sophiag_rho = 0.04;
  int64_t sophiag_update_interval = 10;
  double muon_momentum = 0.95;
  bool muon_nesterov = false;
  MuonScale muon_scale_mode = MuonScale::kSpectral;
  double muon_extra_scale_factor = 1;
  MuonCoefficients muon_coefficient_type = MuonCoefficients::kQuintic;
  int64_t muon_num_ns_steps = 5;
  // Queries and keys of heads whose largest logit of a step was above the threshold are made shorter.
  bool qk_clip = false;
  double qk_clip_threshold = 100, qk_clip_alpha = 0.5;
  double weight_decay = 0.01;
  double ema = 0;  // decay of a moving average of the weights; 0: none is kept
};

}  // namespace espalier::spec
