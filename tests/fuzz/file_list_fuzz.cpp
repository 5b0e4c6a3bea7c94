// A file list of `data blend`, read and written again as a split file.
#include "data/blend_recipe.h"
#include "tests/fuzz/reader_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  return espalier::fuzz::try_reader([&] {
    auto sources = espalier::data::parse_file_list({reinterpret_cast<const char*>(input), size}, "list.txt");
    espalier::data::drop_unweighted(sources);
    espalier::data::split_file_content(sources, {"train", {0, 0.5}, true, "."});
  });
}
