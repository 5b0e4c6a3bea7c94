// The .meta.json next to a data set. Whatever it holds, the data set is read.
#include "data/store_metadata.h"
#include "tests/fuzz/reader_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  espalier::set_log_level(espalier::LogLevel::kQuiet);
  const std::filesystem::path path = espalier::fuzz::written(input, size, "set.meta.json");
  const std::string index = espalier::fuzz::written(nullptr, 0, "set.idx").string();
  const std::string tokens = espalier::fuzz::written(nullptr, 0, "set.bin").string();
  espalier::data::read_metadata({index, tokens, ""});
  return 0;
}
