// What a run says of its optimizer. Fields are named as their options.
#pragma once

namespace espalier::spec {

enum class OptimizerType : int;  // spec/optimizer_element.h; 0 is AdamW
struct OptimizerKind;            // spec/optimizer.h
const OptimizerKind& adamw();

struct OptimizerSettings {
  OptimizerType optimizer{};
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_eps = 1e-8;
  double sgd_momentum = 0.9;
  double lion_beta1 = 0.95, lion_beta2 = 0.98;
  double weight_decay = 0.01;
};

}  // namespace espalier::spec
