// The inner parts of a bf16 matrix product with fp32 accumulation, C = A B, for one instruction set each.
//
// Plain header: no torch, raw pointers. A bf16 is a uint16_t here.
//
// Operands as the kernels want them (depth = the dimension that is summed over, padded to kDepthUnit with zeros):
//   A panel: kPanel rows, each with `depth` consecutive values, rows `stride` apart. Row-major operands serve as they
//     are; transposed ones are packed.
//   B panel: kPanel columns, [depth / 32][2 halves][16 pairs of depths][16 columns][2 depths of the pair]: tiles of 1 KiB,
//     as both VDPBF16PS and the AMX tile product read them.
#pragma once

#include <cstdint>

namespace espalier::kernels {

constexpr int64_t kPanel = 32;      // rows of an A panel, columns of a B panel
constexpr int64_t kDepthUnit = 32;  // one AMX tile row of bf16

// One A panel times consecutive B panels. `rows` x `columns` of C are written; A must have all kPanel rows readable.
struct PanelProduct {
  const uint16_t* a;
  int64_t a_stride;      // elements
  const uint16_t* b;     // columns / kPanel panels (rounded up), each depth * kPanel elements
  int64_t depth;         // a multiple of kDepthUnit
  int64_t rows, columns;
};

struct Bf16Kernels {
  // c [rows, columns] fp32, rows c_stride apart: overwritten, or added to.
  void (*store)(const PanelProduct& product, float* c, int64_t c_stride);
  void (*add)(const PanelProduct& product, float* c, int64_t c_stride);
  // y = round(C + bias); bias may be nullptr.
  void (*store_bf16)(const PanelProduct& product, const uint16_t* bias, uint16_t* y, int64_t y_stride);
};

// Each in its own unit, matmul_avx512bf16.cpp and matmul_amx.cpp.
extern const Bf16Kernels kAvx512Bf16Kernels;
extern const Bf16Kernels kAmxKernels;

// Rearranging operands into panels; matmul_pack_avx512.cpp. What lies beyond `rows` or `depth` becomes zero.
struct PackSource {
  const uint16_t* values;
  int64_t stride;        // elements between rows of the source
};
// Columns of B are rows of the source (B = source^T): panel of kPanel source rows, `depth` values each.
void pack_b_transposed(const PackSource& source, int64_t columns, int64_t depth, uint16_t* panel);
// Rows of B are rows of the source: `depth` source rows, `columns` <= kPanel values each.
void pack_b(const PackSource& source, int64_t columns, int64_t depth, uint16_t* panel);
// Rows of A are columns of the source (A = source^T): `depth` source rows of `rows` <= kPanel values. The panel's rows
// are round_up(depth, kDepthUnit) apart.
void pack_a_transposed(const PackSource& source, int64_t rows, int64_t depth, uint16_t* panel);
// Rows of A are rows of the source, copied so that all kPanel rows and the whole padded depth are readable.
void pack_a(const PackSource& source, int64_t rows, int64_t depth, uint16_t* panel);

}  // namespace espalier::kernels
