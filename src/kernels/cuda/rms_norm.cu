// RMS norms of rows (kernels/rms_norm.h).
#include "kernels/cuda/norm.cuh"

namespace espalier::cuda {

void rms_norm_forward(Element type, const kernels::RmsNormForward& args, int64_t rows, Stream stream) {
  norm_forward<false>("rms_norm_forward", type,
                      {.x = args.x,
                       .weight = args.weight,
                       .bias = nullptr,
                       .y = args.y,
                       .mean = nullptr,
                       .rstd = args.rstd,
                       .columns = args.columns,
                       .rows = rows,
                       .epsilon = args.epsilon,
                       .warps = 1},
                      stream);
}

void rms_norm_backward(Element type, const kernels::RmsNormBackward& args, int64_t rows, const ColumnSums& to,
                       Stream stream) {
  norm_backward<false>("rms_norm_backward", type,
                       {.x = args.x,
                        .weight = args.weight,
                        .dy = args.dy,
                        .dx = args.dx,
                        .mean = nullptr,
                        .rstd = args.rstd,
                        .columns = args.columns,
                        .rows = rows,
                        .rows_per_part = 0,
                        .warps = 1,
                        .partials = nullptr},
                       to, stream);
}

}  // namespace espalier::cuda
