#include "kernels/internal/vector_avx2.h"

#include "kernels/internal/row_table.h"

namespace espalier::kernels::avx2 {

const RowKernels& row_kernels() {
  static constexpr RowKernels kTable = make_row_kernels<Floats>();
  return kTable;
}

}  // namespace espalier::kernels::avx2
