// A safetensors file: its header, and the tensors that it names.
#include "store/weight_folder.h"
#include "tests/fuzz/reader_fuzz.h"
#include "tests/fuzz/use_torch_value.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = espalier::fuzz::written(data, size, "fuzz.safetensors");
  return espalier::fuzz::try_reader([&] {
    for (const auto& [name, view] : espalier::store::open_weights(file)) espalier::fuzz::read_tensor(view);
  });
}
