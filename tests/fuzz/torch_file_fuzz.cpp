// A file of torch.save, zip or old format: read, and what came of it read through.
#include "store/torch_file.h"
#include "tests/fuzz/reader_fuzz.h"
#include "tests/fuzz/use_torch_value.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = espalier::fuzz::written(data, size, "fuzz.pt");
  return espalier::fuzz::try_reader([&] { espalier::fuzz::use_value(espalier::store::read_torch_file(file)); });
}
