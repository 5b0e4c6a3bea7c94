// numpy's arrays and scalars in a pickle. Throws Refusal.
#pragma once

#include "store/internal/torch_nodes.h"

namespace espalier::store {

// The array that BUILD gives to one of _reconstruct: state is (version, shape, dtype, is_fortran, bytes).
NumpyArray numpy_array_of_state(const TorchValue& state);
// _frombuffer(bytes, dtype, shape, order)
NumpyArray numpy_array_of_buffer(const TorchItems& arguments);
// scalar(dtype, bytes): a bool, an int or a float.
TorchValue numpy_scalar(const TorchItems& arguments);

}  // namespace espalier::store
