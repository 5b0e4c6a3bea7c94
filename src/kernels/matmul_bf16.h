// The inner parts of a bf16 matrix product with fp32 accumulation, C = A B, for one instruction set each.
//
// Plain header: no torch, raw pointers. A bf16 is a uint16_t here.
//
// Operands as the kernels want them (depth = the dimension that is summed over, padded to kDepthUnit with zeros):
//   A panel: kPanel rows. Row-major operands serve as they are; transposed ones are packed into blocks.
//   B panel: kPanel columns, always packed into blocks.
// A block covers kDepthUnit of the depth. Of A: [32 rows][32 depths]. Of B: [2 halves][16 pairs of depths][16 columns]
// [2 depths of the pair], as both VDPBF16PS and the AMX tile product read it.
#pragma once

#include <cstdint>

namespace espalier::kernels {

constexpr int64_t kPanel = 32;      // rows of an A panel, columns of a B panel
constexpr int64_t kDepthUnit = 32;  // one AMX tile row of bf16
constexpr int64_t kBlockElements = kPanel * kDepthUnit;

// A part of the depth: for kernels that take slices, so that operands of any depth stay in the caches.
struct DepthSlice {
  int64_t b_stride;  // elements between panels of B
  float* sums;       // [panels of B][kPanel][kPanel], of this panel of A, from slice to slice; aligned to 64 bytes
  bool begins, ends;
  uint16_t* next_copy;  // where the next panel of A is copied to: blocks, kPanel values between rows. nullptr: nowhere
};

// One A panel times consecutive B panels. `rows` x `columns` of C are written; A must have all kPanel rows readable.
struct PanelProduct {
  const uint16_t* a;
  int64_t a_stride;   // elements between rows
  int64_t a_step;     // elements between one kDepthUnit of the depth and the next
  const uint16_t* b;  // columns / kPanel panels (rounded up), each depth * kPanel elements
  int64_t depth;      // a multiple of kDepthUnit
  int64_t rows, columns;
  // The panel of A that will be multiplied next, its rows next_stride apart and as deep; it may be fetched meanwhile.
  // nullptr: none.
  const uint16_t* next_a = nullptr;
  int64_t next_stride = 0;
  const DepthSlice* slice = nullptr;  // nullptr: this is the whole depth
};

// What is added to a product: by_product * C + by_addend * values. [rows, columns], rows `stride` elements apart.
struct Addend {
  float by_product, by_addend;
  const uint16_t* values;
  int64_t stride;
};

// What is packed: `values` of the first row, rows `stride` elements apart.
struct PackSource {
  const uint16_t* values;
  int64_t stride;
};

struct Bf16Kernels {
  bool has_tiles;  // tile registers: many columns of B for each panel of A keep it near; slices of the depth are taken
  // c [rows, columns] fp32, rows c_stride apart: overwritten, or added to.
  void (*store)(const PanelProduct& product, float* c, int64_t c_stride);
  void (*add)(const PanelProduct& product, float* c, int64_t c_stride);
  // y = round(C + bias); bias may be nullptr.
  void (*store_bf16)(const PanelProduct& product, const uint16_t* bias, uint16_t* y, int64_t y_stride);
  // y = round(the sum that Addend says), rounded once.
  void (*store_sum_bf16)(const PanelProduct& product, const Addend& plus, uint16_t* y, int64_t y_stride);
  // A^T times B: packs `depth` source rows of `rows` values into one block of an A panel; `store` and `add` of such
  // panels, whose blocks are kBlockElements apart (a_step) and whose a_stride is kDepthUnit. What is stored is not
  // expected to be read soon: it may go to memory past the caches.
  void (*pack_transposed)(const PackSource& source, int64_t rows, int64_t depth, uint16_t* block);
  void (*store_packed)(const PanelProduct& product, float* c, int64_t c_stride);
  void (*add_packed)(const PanelProduct& product, float* c, int64_t c_stride);
};

// Each in its own unit, matmul_neonbf16.cpp, matmul_avx512bf16.cpp and matmul_amx.cpp.
extern const Bf16Kernels kNeonBf16Kernels;
extern const Bf16Kernels kAvx512Bf16Kernels;
extern const Bf16Kernels kAmxKernels;

// Rearranging operands; matmul_pack_avx512.cpp and matmul_pack_neon.cpp. What is beyond the given counts becomes zero.
// Each of the first three fills one block from at most kPanel x kDepthUnit values.
// B = source^T: `columns` source rows of `depth` values.
void pack_b_transposed(const PackSource& source, int64_t columns, int64_t depth, uint16_t* block);
// B = source: `depth` source rows of `columns` values.
void pack_b(const PackSource& source, int64_t columns, int64_t depth, uint16_t* block);
// A = source^T: `depth` source rows of `rows` values.
void pack_a_transposed(const PackSource& source, int64_t rows, int64_t depth, uint16_t* block);
// A whole panel, row-major with rows of round_up(depth, kDepthUnit): `rows` source rows of `depth` values.
void pack_a(const PackSource& source, int64_t rows, int64_t depth, uint16_t* panel);

}  // namespace espalier::kernels
