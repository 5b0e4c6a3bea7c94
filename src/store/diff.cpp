#include "store/diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/format.h"
#include "base/progress.h"
#include "store/step_reader.h"

namespace espalier::store {
namespace {

float from_bfloat16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

// IEEE half: 1 sign, 5 exponent (bias 15), 10 fraction bits.
float from_float16(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const float sign = bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) return fraction == 0 ? sign * HUGE_VALF : std::nanf("");
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

template <class Value>
double as_double(const uint8_t* bytes) {
  Value value;
  std::memcpy(&value, bytes, sizeof value);
  return static_cast<double>(value);
}

double element(DType dtype, const uint8_t* bytes) {
  switch (dtype) {
    case DType::kFloat32: return as_double<float>(bytes);
    case DType::kFloat64: return as_double<double>(bytes);
    case DType::kInt64: return as_double<int64_t>(bytes);
    case DType::kInt32: return as_double<int32_t>(bytes);
    case DType::kInt16: return as_double<int16_t>(bytes);
    case DType::kInt8: return as_double<int8_t>(bytes);
    case DType::kUInt8:
    case DType::kBool: return as_double<uint8_t>(bytes);
    case DType::kFloat16:
    case DType::kBFloat16: break;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes, 2);
  return dtype == DType::kFloat16 ? from_float16(bits) : from_bfloat16(bits);
}

// The bytes of a tensor from the first to the last, one checked block in memory at a time.
class ByteStream {
 public:
  ByteStream(StepReader& reader, const StoredTensor& tensor) : reader_(reader), tensor_(tensor) {}

  // Bytes that can be looked at; reads the next block when there are none.
  int64_t available() {
    if (position_ == static_cast<int64_t>(block_.size()) && next_ < tensor_.blocks.size()) {
      block_.resize(static_cast<size_t>(tensor_.blocks[next_].bytes));
      reader_.read_block(tensor_, next_++, block_.data());
      position_ = 0;
    }
    return static_cast<int64_t>(block_.size()) - position_;
  }
  const uint8_t* data() const { return block_.data() + position_; }
  void skip(int64_t bytes) { position_ += bytes; }

 private:
  StepReader& reader_;
  const StoredTensor& tensor_;
  std::vector<uint8_t> block_;
  int64_t position_ = 0;
  size_t next_ = 0;
};

void compare_elements(DType dtype, const uint8_t* a, const uint8_t* b, int64_t bytes, TensorDifference& difference) {
  const int64_t size = size_bytes(dtype);
  for (int64_t at = 0; at < bytes; at += size) {
    if (std::memcmp(a + at, b + at, static_cast<size_t>(size)) == 0) continue;
    ++difference.num_different;
    const double first = element(dtype, a + at), second = element(dtype, b + at);
    const double distance = first == second ? 0.0 : std::abs(first - second);  // equal infinities, -0 and 0
    if (std::isnan(distance) || distance > difference.largest_difference) difference.largest_difference = distance;
  }
}

TensorDifference compare_values(StepReader& first, const StoredTensor& a, StepReader& second, const StoredTensor& b) {
  TensorDifference difference{.kind = TensorDifference::Kind::kValues, .name = a.name, .first = {}, .second = {}};
  ByteStream left(first, a), right(second, b);
  for (;;) {
    const int64_t bytes = std::min(left.available(), right.available());
    if (bytes == 0) return difference;
    if (std::memcmp(left.data(), right.data(), static_cast<size_t>(bytes)) != 0)
      compare_elements(a.dtype, left.data(), right.data(), bytes, difference);
    left.skip(bytes), right.skip(bytes);
  }
}

std::string text_of(int64_t value) { return std::to_string(value); }
std::string text_of(double value) { return format_shortest(value); }
std::string text_of(const std::string& value) { return value.empty() ? "(empty)" : value; }
template <class Value>
std::string text_of(const std::map<std::string, Value>& values) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : values) parts.push_back(name + "=" + text_of(value));
  return parts.empty() ? "(empty)" : join(parts, ", ");
}

std::vector<std::pair<std::string, std::string>> fields_of(const TrainingState& state) {
  std::vector<std::pair<std::string, std::string>> fields;
  TrainingState::visit_fields(state,
                              [&](const char* name, const auto& value) { fields.emplace_back(name, text_of(value)); });
  return fields;
}

std::vector<std::string> compare_states(const TrainingState& a, const TrainingState& b) {
  const auto first = fields_of(a), second = fields_of(b);
  std::vector<std::string> differences;
  for (size_t index = 0; index < first.size(); ++index)
    if (first[index].second != second[index].second)
      differences.push_back(concat(first[index].first, ": ", first[index].second, " | ", second[index].second));
  return differences;
}

}  // namespace

CheckpointDifference diff_steps(const std::filesystem::path& first_folder, const std::filesystem::path& second_folder) {
  using Kind = TensorDifference::Kind;
  StepReader first(first_folder), second(second_folder);
  CheckpointDifference result;
  Progress progress("compare", first.manifest().tensor_bytes(), Progress::Unit::kBytes);
  for (const StoredTensor& a : first.manifest().tensors) {
    const StoredTensor* b = second.manifest().find(a.name);
    if (b == nullptr) {
      result.tensors.push_back({.kind = Kind::kOnlyInFirst, .name = a.name, .first = describe(a), .second = {}});
    } else if (a.dtype != b->dtype || a.shape != b->shape) {
      result.tensors.push_back(
          {.kind = Kind::kShapeOrType, .name = a.name, .first = describe(a), .second = describe(*b)});
    } else {
      ++result.num_compared;
      TensorDifference difference = compare_values(first, a, second, *b);
      difference.first = difference.second = describe(a);
      if (difference.num_different > 0) result.tensors.push_back(std::move(difference));
    }
    progress.advance(a.num_bytes());
  }
  for (const StoredTensor& b : second.manifest().tensors)
    if (first.manifest().find(b.name) == nullptr)
      result.tensors.push_back({.kind = Kind::kOnlyInSecond, .name = b.name, .first = {}, .second = describe(b)});
  result.state = compare_states(first.manifest().state, second.manifest().state);
  progress.finish();
  return result;
}

}  // namespace espalier::store
