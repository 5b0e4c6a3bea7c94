#include "ckpt/dtype.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace espalier::ckpt {
namespace {

using store::DType;
constexpr std::array<std::pair<at::ScalarType, DType>, 10> kTypes = {{{at::kFloat, DType::kFloat32},
                                                                      {at::kHalf, DType::kFloat16},
                                                                      {at::kBFloat16, DType::kBFloat16},
                                                                      {at::kDouble, DType::kFloat64},
                                                                      {at::kLong, DType::kInt64},
                                                                      {at::kInt, DType::kInt32},
                                                                      {at::kShort, DType::kInt16},
                                                                      {at::kChar, DType::kInt8},
                                                                      {at::kByte, DType::kUInt8},
                                                                      {at::kBool, DType::kBool}}};

}  // namespace

store::DType dtype_of(at::ScalarType type) {
  for (const auto& [scalar, dtype] : kTypes)
    if (scalar == type) return dtype;
  ESPALIER_CHECK(false, "a checkpoint holds no tensors of type ", c10::toString(type));
}

at::ScalarType scalar_type_of(store::DType dtype) {
  for (const auto& [scalar, stored] : kTypes)
    if (stored == dtype) return scalar;
  ESPALIER_CHECK(false, "type ", store::to_string(dtype));
}

}  // namespace espalier::ckpt
