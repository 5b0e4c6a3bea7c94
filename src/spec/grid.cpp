#include "spec/grid.h"

#include "base/error.h"

namespace espalier::spec {

int64_t GridShape::size(Axis axis) const {
  switch (axis) {
    case Axis::kTensor: return tensor;
    case Axis::kContext: return context;
    case Axis::kData: return data;
    case Axis::kPipeline: return pipeline;
  }
  ESPALIER_CHECK(false, "unknown axis");
  return 0;
}

GridPosition position_of(const GridShape& shape, int64_t rank) {
  ESPALIER_CHECK(rank >= 0 && rank < shape.num_ranks(), "rank ", rank, " of ", shape.num_ranks());
  GridPosition position;
  position.tensor = rank % shape.tensor;
  position.context = rank / shape.tensor % shape.context;
  position.data = rank / (shape.tensor * shape.context) % shape.data;
  position.pipeline = rank / (shape.tensor * shape.context * shape.data);
  return position;
}

int64_t rank_of(const GridShape& shape, const GridPosition& position) {
  return ((position.pipeline * shape.data + position.data) * shape.context + position.context) * shape.tensor +
         position.tensor;
}

std::string to_string(const GridShape& shape) {
  const std::string context = shape.context == 1 ? "" : concat("cp", shape.context);
  return concat("tp", shape.tensor, context, "pp", shape.pipeline, "dp", shape.data);
}

}  // namespace espalier::spec
