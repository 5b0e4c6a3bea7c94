// All optimizers. One more is a file beside this, a line here, and its name in OptimizerType.
#pragma once

#include "spec/optimizers/adam.h"
#include "spec/optimizers/adopt.h"
#include "spec/optimizers/lamb.h"
#include "spec/optimizers/lion.h"
#include "spec/optimizers/muon.h"
#include "spec/optimizers/schedule_free.h"
#include "spec/optimizers/sgd.h"
#include "spec/optimizers/sophia.h"

namespace espalier::spec {

template <class... Optimizer>
struct OptimizerList {
  static constexpr int kSize = sizeof...(Optimizer);
};
using Optimizers =
    OptimizerList<Adam, Sgd, PlainSgd, Lion, Lamb, Adopt, AdamScheduleFree, SgdScheduleFree, Muon, SophiaG>;
static_assert(Optimizers::kSize == kNumOptimizers);

}  // namespace espalier::spec
