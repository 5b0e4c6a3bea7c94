#include "base/foreign_checkpoint.h"

#include "base/error.h"
#include "base/shell.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// A file or folder of Megatron's or DeepSpeed's that begins with one of these is in `folder`.
std::optional<std::string> megatron_entry(const fs::path& folder) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    for (const char* start : {"latest_checkpointed_iteration.txt", "iter_", "global_step", "mp_rank_", "zero_pp_rank_",
                              "bf16_zero_pp_rank_", "layer_"})
      if (name.starts_with(start)) return name;
  }
  return std::nullopt;
}

std::string advice(const std::string& what, const char* verb, const fs::path& folder) {
  return concat(what, ", not a checkpoint of Espalier. Make one of it: espalier checkpoint ", verb, " --input ",
                shell_word(folder.string()), " --save NEW_FOLDER; then give --load NEW_FOLDER");
}

}  // namespace

std::optional<std::string> describe_foreign_checkpoint(const fs::path& folder) {
  for (const char* weights :
       {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (is_there(folder / "config.json") && is_there(folder / weights))
      return advice(concat("it is a Hugging Face model (config.json, ", weights, ")"), "import-hf", folder);
  if (const auto entry = megatron_entry(folder))
    return advice(concat("it is a checkpoint of Megatron or DeepSpeed (", *entry, ")"), "import-megatron", folder);
  return std::nullopt;
}

}  // namespace espalier
