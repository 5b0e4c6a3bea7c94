// A small model of each family, with batches that depend on their number alone, for tests that train by hand.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "models/build.h"
#include "tensor/batch.h"

namespace espalier::test {

inline constexpr int64_t kSmallLayers = 4;  // which two stages divide evenly; of a T5 two of the encoder

struct SmallModel {
  std::vector<spec::ParamSpec> params;
  std::function<std::unique_ptr<pipeline::Stage>(const nn::LayerBuilder& builder, const plan::DepthRange& part,
                                                 const models::StageOptions& options)>
      build;
  // Of one row, which is row `number` of the run; every row has as many targets.
  std::function<tensor::Batch(int64_t number)> batch;
};

enum class SmallFamily { kGpt, kBert, kT5 };
SmallModel small_model(SmallFamily family);

}  // namespace espalier::test
