// Ranks of tiktoken, as lines and as JSON.
#include "tests/fuzz/reader_fuzz.h"
#include "text/internal/tiktoken_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return espalier::fuzz::try_reader([&] {
    espalier::text::internal::read_tiktoken_file(espalier::fuzz::written(data, size, "cl100k_base.tiktoken"));
  });
}
