// Megatron's own layout: one file for each tensor and pipeline rank.
#include <map>

#include "base/error.h"
#include "base/format.h"
#include "convert/megatron/internal/read.h"
#include "store/torch_file.h"

namespace espalier::convert {
namespace {

using store::TorchValue;

// A module's parameters with keys joined by dots, in their order.
void flatten(const TorchValue& value, const std::string& path, std::vector<NamedView>& found) {
  if (value.is_tensor()) found.push_back({path, value.view(), path});
  if (!value.is_dict()) return;
  for (const auto& [key, below] : value.pairs())
    if (key.is_string() && !is_extra_state(key.as_string("")))
      flatten(below, path.empty() ? key.as_string("a key") : path + "." + key.as_string("a key"), found);
}

std::string without(const std::string& text, const std::string& prefix) {
  return text.starts_with(prefix) ? text.substr(prefix.size()) : text;
}

// A parameter of a chunk of the model: name without the number of its layer.
struct ModuleName {
  int64_t layer = -1;  // within the chunk; -1: of none
  std::string name;    // our name, or its end after "layers.N."
};

ModuleName module_name(const std::string& path) {
  std::string name = without(without(path, "module."), "language_model.");
  for (const char* part : {"embedding.", "encoder.", "transformer.", "decoder."}) name = without(name, part);
  if (name == "word_embeddings_for_head.weight") return {-1, "word_embeddings.weight"};
  if (name == "output_layer.weight") return {-1, "lm_head.weight"};
  if (name.starts_with("final_norm.")) return {-1, "final_layernorm." + name.substr(11)};
  if (!name.starts_with("layers.")) return {-1, layer_parameter_name(name)};
  const size_t dot = name.find('.', 7);
  const std::string number = name.substr(7, dot == std::string::npos ? dot : dot - 7);
  if (dot == std::string::npos || number.empty() || number.size() > 9 ||
      number.find_first_not_of("0123456789") != std::string::npos)
    return {-1, name};
  return {std::stoll(number), layer_parameter_name(name.substr(dot + 1))};
}

struct Chunk {
  std::vector<std::pair<ModuleName, NamedView>> params;
  int64_t num_layers = 0;
};

struct RankFile {
  TorchValue root;
  std::vector<Chunk> chunks;  // more than one with virtual pipeline stages
};

RankFile read_rank(const std::filesystem::path& path) {
  RankFile file{store::read_torch_file(path), {}};
  std::vector<std::string> keys;
  if (file.root.find("model") != nullptr) keys = {"model"};
  for (int64_t chunk = 0; keys.empty() || keys[0] != "model"; ++chunk) {
    const std::string key = concat("model", chunk);
    if (file.root.find(key) == nullptr) break;
    keys.push_back(key);
  }
  if (keys.empty()) refuse(path, "model", "the module's tensors", "nothing");
  for (const std::string& key : keys) {
    std::vector<NamedView> found;
    flatten(file.root.at(key), "", found);
    Chunk chunk;
    for (NamedView& param : found) {
      const ModuleName name = module_name(param.name);
      if (name.name.empty()) continue;
      chunk.num_layers = std::max(chunk.num_layers, name.layer + 1);
      param.key = key + "." + param.key;
      chunk.params.emplace_back(name, param);
    }
    file.chunks.push_back(std::move(chunk));
  }
  return file;
}

std::vector<TorchValue> flat_list(const TorchValue& groups, const std::string& what) {
  std::vector<TorchValue> flat;
  for (const TorchValue& group : items_of(groups, what)) {
    const store::TorchItems& items = items_of(group, what + "[]");
    flat.insert(flat.end(), items.begin(), items.end());
  }
  return flat;
}

void read_optimizer(const TorchValue& root, const std::vector<NamedView>& params, const RankPlace& place,
                    MegatronCheckpoint& checkpoint) {
  const TorchValue* optimizer = root.find("optimizer");
  if (optimizer == nullptr || optimizer->is_none()) return;
  const TorchValue* inner = optimizer->find("optimizer");
  if (inner == nullptr) inner = optimizer->find("optimizer_state_dict");
  const bool keeps_masters = inner != nullptr;
  if (inner == nullptr) inner = optimizer;
  const TorchValue* states = inner->find("state");
  if (states == nullptr || !states->is_dict() || states->pairs().empty())
    refuse(place.file, "optimizer", "the state of every parameter",
           "none: Megatron's distributed optimizer keeps it in files of its own, which this program does not read. "
           "Convert the checkpoint with Megatron (--ckpt-format torch without --use-distributed-optimizer), or import "
           "the weights alone with --no-load-optim");
  std::vector<TorchValue> masters;
  if (keeps_masters)
    for (const char* key : {"fp32_from_fp16_params", "fp32_from_fp16"})
      if (const TorchValue* lists = optimizer->find(key); lists != nullptr && masters.empty())
        masters = flat_list(*lists, concat(place.file.string(), ": optimizer.", key));
  checkpoint.order_is_inferred = true;
  read_tensor_states(*inner, masters, in_optimizer_order(params), place, checkpoint);
}

// Layers before each chunk of each stage: chunk by chunk, stage by stage.
std::vector<std::vector<int64_t>> layers_before(const std::vector<RankFile>& stages) {
  std::vector<std::vector<int64_t>> before(stages.size());
  int64_t count = 0;
  for (size_t chunk = 0; chunk < stages[0].chunks.size(); ++chunk)
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      before[stage].push_back(count);
      if (chunk < stages[stage].chunks.size()) count += stages[stage].chunks[chunk].num_layers;
    }
  return before;
}

}  // namespace

void read_megatron(MegatronCheckpoint& checkpoint, bool with_optimizer) {
  const MegatronFiles& files = checkpoint.files;
  for (int64_t tensor = 0; tensor < files.tensor; ++tensor) {
    std::vector<RankFile> stages;
    for (int64_t stage = 0; stage < files.pipeline; ++stage) {
      const auto rank = static_cast<size_t>(stage * files.tensor + tensor);
      stages.push_back(read_rank(files.ranks[rank]));
      if (stages.back().chunks.size() != stages[0].chunks.size())
        refuse(files.ranks[rank], "model", concat(stages[0].chunks.size(), " chunks, as stage 0 has"),
               std::to_string(stages.back().chunks.size()));
    }
    const auto before = layers_before(stages);
    for (int64_t stage = 0; stage < files.pipeline; ++stage) {
      const auto rank = static_cast<size_t>(stage * files.tensor + tensor);
      const RankPlace place{files.ranks[rank], {files.tensor, tensor}, stage};
      const RankFile& file = stages[static_cast<size_t>(stage)];
      // The first file of all decides where the run stands.
      read_run_state(file.root, place.file, tensor == 0 && stage == 0 ? 0 : std::max<size_t>(rank, 1), checkpoint);
      std::vector<NamedView> params;
      for (size_t chunk = 0; chunk < file.chunks.size(); ++chunk)
        for (const auto& [name, param] : file.chunks[chunk].params) {
          NamedView named = param;
          named.name = name.layer < 0
                           ? name.name
                           : concat("layers.", before[static_cast<size_t>(stage)][chunk] + name.layer, ".", name.name);
          const int64_t copy = param.key.find("word_embeddings_for_head") != std::string::npos ? 1 : 0;
          checkpoint.shards.push_back({named.name, TensorKind::kWeight, place.tensor, copy, named.view, 0, 0,
                                       named.view.num_elements(), true, named.key});
          params.push_back(named);
        }
      if (with_optimizer) read_optimizer(file.root, params, place, checkpoint);
    }
  }
}

}  // namespace espalier::convert
