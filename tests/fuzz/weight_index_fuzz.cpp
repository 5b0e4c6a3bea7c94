// The index of a sharded Hugging Face folder, with two shards of one tensor each.
#include <string>

#include "store/weight_folder.h"
#include "tests/fuzz/reader_fuzz.h"
#include "tests/fuzz/use_torch_value.h"

namespace {

void write_shard(const char* file, const std::string& tensor) {
  const std::string header = R"({")" + tensor + R"(":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  bytes += header + "x";
  espalier::fuzz::written(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool shards_are_there = [] {
    write_shard("a.safetensors", "a");
    write_shard("b.safetensors", "b");
    return true;
  }();
  (void)shards_are_there;
  const auto file = espalier::fuzz::written(data, size, "model.safetensors.index.json");
  return espalier::fuzz::try_reader([&] {
    for (const auto& [name, view] : espalier::store::open_weights(file)) espalier::fuzz::read_tensor(view);
  });
}
