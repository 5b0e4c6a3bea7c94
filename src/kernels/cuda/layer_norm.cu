// Layer norm (kernels/layer_norm.h).
#include "kernels/cuda/norm.cuh"

namespace espalier::cuda {

void layer_norm_forward(Element type, const kernels::LayerNormForward& args, int64_t rows, Stream stream) {
  norm_forward<true>("layer_norm_forward", type,
                     {.x = args.x,
                      .weight = args.weight,
                      .bias = args.bias,
                      .y = args.y,
                      .mean = args.mean,
                      .rstd = args.rstd,
                      .columns = args.columns,
                      .rows = rows,
                      .epsilon = args.epsilon,
                      .warps = 1},
                     stream);
}

void layer_norm_backward(Element type, const kernels::LayerNormBackward& args, int64_t rows, const ColumnSums& to,
                         Stream stream) {
  norm_backward<true>("layer_norm_backward", type,
                      {.x = args.x,
                       .weight = args.weight,
                       .dy = args.dy,
                       .dx = args.dx,
                       .mean = args.mean,
                       .rstd = args.rstd,
                       .columns = args.columns,
                       .rows = rows,
                       .rows_per_part = 0,
                       .warps = 1,
                       .partials = nullptr},
                      to, stream);
}

}  // namespace espalier::cuda
