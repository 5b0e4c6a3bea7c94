#include "spec/state_storage.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "spec/stored_state.h"

namespace espalier::spec {
namespace {

struct ThisUnit {};

int64_t block_bytes_of(int64_t num_elements) {
  ESPALIER_CHECK(num_elements % kMomentBlock == 0, num_elements, " elements in blocks of ", kMomentBlock);
  return num_elements / kMomentBlock * kMomentBlockBytes;
}

bool keeps_blocks(const OptimizerKind& kind, const ParamSpec& param) {
  const std::vector<StateTensor>& states = kind.of(param).states;
  return std::any_of(states.begin(), states.end(),
                     [&](const StateTensor& state) { return stored_type(state, param) == StateType::kFp8; });
}

}  // namespace

bool fits_moment_blocks(const ParamSpec& param) {
  return param.shape.size() > 1 && param.shape.back() % kMomentBlock == 0;
}

StateType stored_type(const StateTensor& state, const ParamSpec& param) {
  return state.type == StateType::kFp8 && !fits_moment_blocks(param) ? StateType::kFp32 : state.type;
}

std::vector<int64_t> stored_shape(StateType type, std::vector<int64_t> shape) {
  if (type == StateType::kFp8) shape.back() = block_bytes_of(shape.back());
  return shape;
}

int64_t stored_count(StateType type, int64_t num_elements) {
  return type == StateType::kFp8 ? block_bytes_of(num_elements) : num_elements;
}

std::vector<Extent> stored_extents(StateType type, std::vector<Extent> extents) {
  if (type != StateType::kFp8) return extents;
  for (Extent& extent : extents)
    extent = {block_bytes_of(extent.global_begin), block_bytes_of(extent.local_begin), block_bytes_of(extent.count)};
  return extents;
}

double stored_bytes(StateType type) {
  switch (type) {
    case StateType::kFp32: return 4;
    case StateType::kBf16: return 2;
    case StateType::kFp8: return static_cast<double>(kMomentBlockBytes) / kMomentBlock;
  }
  ESPALIER_CHECK(false, "unknown type of a state");
  return 0;
}

bool cuts_moment_blocks(const ParamSpec& param, int64_t tensor_size) {
  const Placement& placement = param.tensor_placement;
  if (placement.kind != Placement::Kind::kSplit || placement.dim + 1 != static_cast<int>(param.shape.size()))
    return false;
  const std::vector<Extent> extents = local_extents(param, {tensor_size, 0});
  return std::any_of(extents.begin(), extents.end(), [](const Extent& one) { return one.count % kMomentBlock != 0; });
}

std::vector<std::string> cut_moment_blocks(const OptimizerKind& kind, const std::vector<ParamSpec>& params,
                                           int64_t tensor_size) {
  std::vector<std::string> names;
  for (const ParamSpec& param : params)
    if (keeps_blocks(kind, param) && cuts_moment_blocks(param, tensor_size)) names.push_back(param.name);
  return names;
}

void widen_state(StateType type, StateTensor::Moment moment, const void* stored, int64_t num_elements, float* values) {
  const bool has_sign = moment != StateTensor::Moment::kSecond;
  switch (type) {
    case StateType::kFp32: std::memcpy(values, stored, static_cast<size_t>(num_elements) * sizeof(float)); break;
    case StateType::kBf16:
      for (int64_t i = 0; i < num_elements; ++i)
        values[i] = MomentBits<ThisUnit>::float_of(uint32_t{static_cast<const uint16_t*>(stored)[i]} << 16);
      break;
    case StateType::kFp8:
      for (int64_t block = 0; block < block_bytes_of(num_elements) / kMomentBlockBytes; ++block)
        load_block<ThisUnit>(static_cast<const uint8_t*>(stored) + block * kMomentBlockBytes, has_sign,
                             values + block * kMomentBlock);
  }
}

void narrow_state(StateType type, StateTensor::Moment moment, const float* values, int64_t num_elements, void* stored) {
  const bool has_sign = moment != StateTensor::Moment::kSecond;
  uint32_t nearest[kMomentBlock];
  std::fill_n(nearest, kMomentBlock, kNearest);
  switch (type) {
    case StateType::kFp32: std::memcpy(stored, values, static_cast<size_t>(num_elements) * sizeof(float)); break;
    case StateType::kBf16:
      for (int64_t i = 0; i < num_elements; ++i)
        static_cast<uint16_t*>(stored)[i] =
            MomentBits<ThisUnit>::to_bf16(MomentBits<ThisUnit>::bits_of(values[i]), kNearest);
      break;
    case StateType::kFp8:
      for (int64_t block = 0; block < block_bytes_of(num_elements) / kMomentBlockBytes; ++block)
        store_block<ThisUnit>(values + block * kMomentBlock, nearest, 0, has_sign,
                              static_cast<uint8_t*>(stored) + block * kMomentBlockBytes);
  }
}

}  // namespace espalier::spec
