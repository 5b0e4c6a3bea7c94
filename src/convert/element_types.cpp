#include "convert/internal/element_types.h"

#include <cstring>

#include "base/error.h"
#include "convert/copy_pieces.h"

namespace espalier::convert {
namespace {

using store::DType;

// Tensors of a file may begin at any byte.
template <class Element>
Element load(const void* from, int64_t index) {
  Element element;
  std::memcpy(&element, static_cast<const char*>(from) + index * static_cast<int64_t>(sizeof element), sizeof element);
  return element;
}
template <class Element>
void store_element(void* to, int64_t index, Element element) {
  std::memcpy(static_cast<char*>(to) + index * static_cast<int64_t>(sizeof element), &element, sizeof element);
}

template <class Element>
void copy_same(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t count) {
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(Element));
    return;
  }
  for (int64_t i = 0; i < count; ++i) store_element(to, i * to_stride, load<Element>(from, i * from_stride));
}

// By size alone: the bits are kept.
void copy_same(int64_t element_bytes, const void* from, int64_t from_stride, void* to, int64_t to_stride,
               int64_t count) {
  switch (element_bytes) {
    case 1: return copy_same<uint8_t>(from, from_stride, to, to_stride, count);
    case 2: return copy_same<uint16_t>(from, from_stride, to, to_stride, count);
    case 4: return copy_same<uint32_t>(from, from_stride, to, to_stride, count);
    case 8: return copy_same<uint64_t>(from, from_stride, to, to_stride, count);
  }
  ESPALIER_CHECK(false, element_bytes, " bytes an element");
}

template <class From, class To>
void convert(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    store_element(to, i * to_stride, from_float<To>(to_float(load<From>(from, i * from_stride))));
}

template <class From>
void convert(const void* from, int64_t from_stride, DType to_type, void* to, int64_t to_stride, int64_t count) {
  switch (to_type) {
    case DType::kFloat32: return convert<From, float>(from, from_stride, to, to_stride, count);
    case DType::kFloat64: return convert<From, double>(from, from_stride, to, to_stride, count);
    case DType::kBFloat16: return convert<From, BFloat16>(from, from_stride, to, to_stride, count);
    case DType::kFloat16: return convert<From, Float16>(from, from_stride, to, to_stride, count);
    default: ESPALIER_CHECK(false, "no conversion to ", to_string(to_type));
  }
}

}  // namespace

void copy_elements(DType from_type, const void* from, int64_t from_stride, DType to_type, void* to, int64_t to_stride,
                   int64_t count) {
  if (from_type == to_type) return copy_same(size_bytes(from_type), from, from_stride, to, to_stride, count);
  switch (from_type) {
    case DType::kFloat32: return convert<float>(from, from_stride, to_type, to, to_stride, count);
    case DType::kFloat64: return convert<double>(from, from_stride, to_type, to, to_stride, count);
    case DType::kBFloat16: return convert<BFloat16>(from, from_stride, to_type, to, to_stride, count);
    case DType::kFloat16: return convert<Float16>(from, from_stride, to_type, to, to_stride, count);
    default: ESPALIER_CHECK(false, "no conversion from ", to_string(from_type));
  }
}

}  // namespace espalier::convert
