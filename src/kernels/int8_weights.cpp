#include "kernels/int8_weights.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/cpu_isa.h"
#include "base/error.h"
#include "kernels/internal/int8_product.h"

namespace espalier::kernels {
namespace {

constexpr float kLargest = 127;
constexpr int64_t kMinInt8ProductsPerThread = 1 << 16;

void round_row(const float* row, int64_t inputs, int8_t* to) {
  float largest = 0;
  for (int64_t i = 0; i < inputs; ++i) largest = std::max(largest, std::abs(row[i]));
  const float scale = largest / kLargest;
  for (int64_t i = 0; i < inputs; ++i)
    to[i] =
        scale == 0 ? int8_t{0} : static_cast<int8_t>(std::nearbyint(std::clamp(row[i] / scale, -kLargest, kLargest)));
  std::memcpy(to + inputs, &scale, sizeof scale);
}

}  // namespace

at::Tensor to_int8_rows(const at::Tensor& weight) {
  ESPALIER_CHECK(weight.is_cpu() && weight.dim() == 2, "weight ", weight.sizes());
  const at::Tensor from = weight.to(at::kFloat).contiguous();
  const int64_t inputs = from.size(1);
  const at::Tensor rows = at::empty({from.size(0), inputs + kInt8ScaleBytes}, at::kChar);
  const float* const values = from.const_data_ptr<float>();
  int8_t* const to = rows.data_ptr<int8_t>();
  at::parallel_for(0, from.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      round_row(values + row * inputs, inputs, to + row * (inputs + kInt8ScaleBytes));
  });
  return rows;
}

at::Tensor from_int8_rows(const at::Tensor& rows) {
  const int64_t inputs = num_inputs(rows);
  const at::Tensor values = at::empty({rows.size(0), inputs}, at::kFloat);
  float* to = values.data_ptr<float>();
  const int8_t* from = rows.const_data_ptr<int8_t>();
  for (int64_t row = 0; row < rows.size(0); ++row, to += inputs, from += inputs + kInt8ScaleBytes) {
    float scale;
    std::memcpy(&scale, from + inputs, sizeof scale);
    for (int64_t i = 0; i < inputs; ++i) to[i] = static_cast<float>(from[i]) * scale;
  }
  return values;
}

bool has_int8_rows(const at::Tensor& weight) { return weight.scalar_type() == at::kChar; }

int64_t num_inputs(const at::Tensor& weight) { return weight.size(1) - (has_int8_rows(weight) ? kInt8ScaleBytes : 0); }

at::Tensor int8_row_product(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& bias,
                            at::ScalarType result) {
  ESPALIER_CHECK(x.is_cpu() && x.dim() == 2 && rows.is_contiguous() && x.size(1) == num_inputs(rows), "x is ",
                 x.sizes(), ", int8 rows ", rows.sizes());
  const at::Tensor from = x.to(at::kFloat).contiguous();
  at::Tensor y = at::empty({x.size(0), rows.size(0)}, at::kFloat);
  const Int8Product args{.x = from.const_data_ptr<float>(),
                         .rows = rows.const_data_ptr<int8_t>(),
                         .y = y.data_ptr<float>(),
                         .tokens = x.size(0),
                         .outputs = rows.size(0),
                         .inputs = x.size(1)};
  const CpuIsa isa = cpu_isa();
#ifdef __aarch64__
  const auto multiply = isa >= CpuIsa::kNeon ? neon::int8_product : generic::int8_product;
#else
  const auto multiply = isa >= CpuIsa::kAvx512 ? avx512::int8_product
                        : isa >= CpuIsa::kAvx2 ? avx2::int8_product
                                               : generic::int8_product;
#endif
  const int64_t products = std::max<int64_t>(1, args.tokens * args.inputs * kInt8Block);
  at::parallel_for(0, (args.outputs + kInt8Block - 1) / kInt8Block,
                   std::max<int64_t>(1, kMinInt8ProductsPerThread / products), [&](int64_t begin, int64_t end) {
                     for (int64_t block = begin; block < end; ++block) multiply(args, block);
                   });
  if (bias.defined()) y.add_(bias);
  return y.to(result);
}

}  // namespace espalier::kernels
