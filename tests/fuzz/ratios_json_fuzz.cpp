// A ratios file of `data blend`, read and written again as a split file.
#include "data/blend_recipe.h"
#include "tests/fuzz/reader_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  return espalier::fuzz::try_reader([&] {
    const auto sources = espalier::data::parse_ratios({reinterpret_cast<const char*>(input), size}, "ratios.json");
    espalier::data::split_file_content(sources, {"train", {0, 0.5}, true, "."});
  });
}
