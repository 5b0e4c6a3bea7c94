#include "kernels/internal/vector_neon.h"

#include "kernels/internal/row_table.h"

namespace espalier::kernels::neon {

const RowKernels& row_kernels() {
  static constexpr RowKernels kTable = make_row_kernels<Floats>();
  return kTable;
}

}  // namespace espalier::kernels::neon
