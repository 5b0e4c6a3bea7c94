#include "kernels/internal/vector_neon.h"

#include "kernels/internal/int8_product_rows.h"

namespace espalier::kernels::neon {

void int8_product(const Int8Product& product, int64_t block) { int8_block<Floats>(product, block); }

}  // namespace espalier::kernels::neon
