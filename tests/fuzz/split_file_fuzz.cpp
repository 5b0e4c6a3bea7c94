// A split file of --train-weighted-split-paths-path.
#include "data/data_plan.h"
#include "tests/fuzz/reader_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  return espalier::fuzz::try_reader([&] {
    const std::string content(reinterpret_cast<const char*>(input), size);
    for (const std::string& group : espalier::data::parse_quoted_groups(content, "splits.txt"))
      for (const auto& source : espalier::data::parse_data_group(group).sources)
        espalier::data::documents_in_range(*source.range, 1'000'000'000);
  });
}
