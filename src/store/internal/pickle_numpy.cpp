#include "store/internal/pickle_numpy.h"

#include <cstring>
#include <limits>

#include "base/format.h"
#include "store/internal/pickle_input.h"

namespace espalier::store {
namespace {

using Kind = TorchValue::Kind;

struct NumpyType {
  std::string name;  // "<u4"
  char kind;
  int64_t bytes;
};

// A numpy.dtype is called with ("u4", False, True); its state is (3, "<", None, None, None, -1, -1, 0).
NumpyType type_of(const TorchValue& dtype) {
  if (dtype.kind() != Kind::kRecord || dtype.class_name() != "numpy.dtype" || dtype.items().empty() ||
      !dtype.items()[0].is_string())
    refuse_file("expected a numpy dtype, found ", dtype.describe());
  const std::string name = dtype.items()[0].as_string("dtype");
  std::string order = "|";
  if (!dtype.state().is_none()) {
    const TorchValue& state = dtype.state();
    if (!state.is_sequence() || state.items().size() < 5 || !state.items()[1].is_string())
      refuse_file("expected the state of a numpy dtype, found ", state.describe());
    order = state.items()[1].as_string("byte order");
    for (const size_t index : {2, 3, 4})
      if (!state.items()[index].is_none()) refuse_file("expected a plain numpy dtype, found one with fields");
  }
  const bool plain = name == "b1" || name == "i1" || name == "u1" || name == "i2" || name == "u2" || name == "i4" ||
                     name == "u4" || name == "i8" || name == "u8" || name == "f2" || name == "f4" || name == "f8";
  if (!plain) refuse_file("expected a numpy dtype of numbers, found ", dtype.items()[0].describe());
  if (order != "<" && order != "|")
    refuse_file("expected a little-endian numpy dtype, found ", dtype.state().items()[1].describe());
  const int64_t bytes = name[1] - '0';
  if (bytes > 1 && order == "|") order = "<";  // a dtype without state is this machine's
  if (bytes == 1) order = "|";
  return {order + name, name[0], bytes};
}

NumpyArray array_of(const TorchValue& dtype, const TorchValue& shape, const TorchValue& data) {
  const NumpyType type = type_of(dtype);
  if (data.kind() != Kind::kBytes) refuse_file("expected the bytes of a numpy array, found ", data.describe());
  if (!shape.is_sequence()) refuse_file("expected the shape of a numpy array, found ", shape.describe());
  NumpyArray array = {.dtype = type.name, .shape = {}, .data = data.bytes()};
  int64_t bytes = type.bytes;
  for (const TorchValue& item : shape.items()) {
    const int64_t size = item.kind() == Kind::kInt ? item.as_int("size") : -1;
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes))
      refuse_file("expected a size of a numpy array, found ", item.describe());
    array.shape.push_back(size);
  }
  if (bytes != static_cast<int64_t>(array.data.size()))
    refuse_file("expected ", bytes, " bytes of a numpy array, found ", array.data.size());
  return array;
}

double half_to_double(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  const double sign = half >> 15 != 0 ? -1 : 1;
  if (exponent == 31)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  const double scale = exponent == 0 ? 1.0 / (1 << 24) : static_cast<double>(1 << exponent) / (1 << 25);
  return sign * scale * (exponent == 0 ? fraction : fraction + 1024);
}

template <class Number>
Number number_of(const std::string& bytes) {
  Number number;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

}  // namespace

NumpyArray numpy_array_of_state(const TorchValue& state) {
  if (state.kind() != Kind::kTuple || state.items().size() != 5)
    refuse_file("expected the 5 parts of a numpy array, found ", state.describe());
  const TorchItems& parts = state.items();
  NumpyArray array = array_of(parts[2], parts[1], parts[4]);
  if (parts[3].kind() != Kind::kBool) refuse_file("expected the order of a numpy array, found ", parts[3].describe());
  if (parts[3].as_bool("order") && array.shape.size() > 1)
    refuse_file("expected a numpy array in C order, found one in Fortran's");
  return array;
}

NumpyArray numpy_array_of_buffer(const TorchItems& arguments) {
  if (arguments.size() != 4) refuse_file("expected 4 arguments of a numpy array, found ", arguments.size());
  NumpyArray array = array_of(arguments[1], arguments[2], arguments[0]);
  const bool c_order = arguments[3].is_string() && arguments[3].as_string("order") == "C";
  if (!c_order && array.shape.size() > 1)
    refuse_file("expected a numpy array in C order, found ", arguments[3].describe());
  return array;
}

TorchValue numpy_scalar(const TorchItems& arguments) {
  if (arguments.size() != 2) refuse_file("expected 2 arguments of a numpy scalar, found ", arguments.size());
  const NumpyType type = type_of(arguments[0]);
  if (arguments[1].kind() != Kind::kBytes || static_cast<int64_t>(arguments[1].bytes().size()) != type.bytes)
    refuse_file("expected ", type.bytes, " bytes of a numpy scalar, found ", arguments[1].describe());
  const std::string& bytes = arguments[1].bytes();
  const std::string name = type.name.substr(1);
  if (name == "b1") return TorchValue::boolean(bytes[0] != 0);
  if (name == "f8") return TorchValue::real(number_of<double>(bytes));
  if (name == "f4") return TorchValue::real(static_cast<double>(number_of<float>(bytes)));
  if (name == "f2") return TorchValue::real(half_to_double(number_of<uint16_t>(bytes)));
  if (name == "i1") return TorchValue::integer(number_of<int8_t>(bytes));
  if (name == "u1") return TorchValue::integer(number_of<uint8_t>(bytes));
  if (name == "i2") return TorchValue::integer(number_of<int16_t>(bytes));
  if (name == "u2") return TorchValue::integer(number_of<uint16_t>(bytes));
  if (name == "i4") return TorchValue::integer(number_of<int32_t>(bytes));
  if (name == "u4") return TorchValue::integer(number_of<uint32_t>(bytes));
  const uint64_t whole = number_of<uint64_t>(bytes);
  if (type.kind == 'u' && whole > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    refuse_file("expected an int of 64 bits with sign, found the numpy scalar ", whole);
  return TorchValue::integer(static_cast<int64_t>(whole));
}

}  // namespace espalier::store
