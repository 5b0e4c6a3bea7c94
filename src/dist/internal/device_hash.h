// Hashes of tensors where they are: of a device's memory only eight bytes come to the host.
#pragma once

#include <ATen/core/Tensor.h>

namespace espalier::dist {

// A scalar int64 on the device of `values` (contiguous, any type): the sum, over all words of eight bytes, of a
// bijection of the word that depends on its place. Sums wrap, so their order does not matter: the same bytes give the
// same number on every device, and a change of one word always another one. Waits for nothing; takes 8 MiB a few times.
at::Tensor device_hash(const at::Tensor& values);

}  // namespace espalier::dist
