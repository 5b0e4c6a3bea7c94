// Megatron's own layout: one file for each tensor and pipeline rank.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

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

// A chunk of the model: what one of several virtual pipeline stages has, or all of a stage.
struct Chunk {
  std::string key;  // "model", "model0"
  std::vector<NamedView> tensors;
  std::vector<ModuleName> names;              // of them
  std::map<std::string, int64_t> num_layers;  // of each stack
};

struct RankFile {
  TorchValue root;
  std::vector<Chunk> chunks;
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
    Chunk chunk{.key = key, .tensors = {}, .names = {}, .num_layers = {}};
    flatten(file.root.at(key), "", chunk.tensors);
    file.chunks.push_back(std::move(chunk));
  }
  return file;
}

const FamilyFormats& family_of(const std::vector<RankFile>& stages, const MegatronFiles& files) {
  std::set<std::string> names;
  for (const RankFile& stage : stages)
    for (const Chunk& chunk : stage.chunks)
      for (const NamedView& tensor : chunk.tensors) names.insert(tensor.name);
  std::vector<std::string> known;
  for (const FamilyFormats* formats : all_formats()) {
    if (formats->megatron.recognizes(names)) return *formats;
    known.push_back(formats->family->display);
  }
  refuse(files.ranks[0], "model", "the tensors of a " + join(known, ", or a "),
         join({names.begin(), names.end()}, ", "));
}

void name_tensors(Chunk& chunk, const MegatronCodec& codec) {
  for (const NamedView& tensor : chunk.tensors) {
    chunk.names.push_back(codec.module_name(without_prefix(without_prefix(tensor.name, "module."), "language_model.")));
    const ModuleName& name = chunk.names.back();
    if (name.layer < 0 || name.name.empty()) continue;
    int64_t& count = chunk.num_layers[name.stack];
    count = std::max(count, name.layer + 1);
  }
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

// Layers of each stack before each chunk of each stage: chunk by chunk, stage by stage.
using LayerCounts = std::map<std::string, int64_t>;
std::vector<std::vector<LayerCounts>> layers_before(const std::vector<RankFile>& stages) {
  std::vector<std::vector<LayerCounts>> before(stages.size());
  LayerCounts counts;
  for (size_t chunk = 0; chunk < stages[0].chunks.size(); ++chunk)
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      before[stage].push_back(counts);
      for (const auto& [stack, count] : stages[stage].chunks[chunk].num_layers) counts[stack] += count;
    }
  return before;
}

// Modules have the copy of the word embedding before the head that uses it, files after everything else.
void put_copy_before_head(std::vector<NamedView>& params, size_t copy) {
  const auto head = std::find_if(params.begin(), params.end(),
                                 [](const NamedView& param) { return param.name.starts_with("lm_head."); });
  const auto place = params.begin() + static_cast<std::ptrdiff_t>(copy);
  if (head < place) std::rotate(head, place, place + 1);
}

// The parameters of a chunk by our names, in the order of the module; their weights are added to the checkpoint.
// `stage_of`: where this tensor rank had them first.
std::vector<NamedView> add_weights(const Chunk& chunk, LayerCounts before, const RankPlace& place,
                                   std::map<std::string, int64_t>& stage_of, MegatronCheckpoint& checkpoint) {
  std::vector<NamedView> params;
  std::optional<size_t> copy;
  for (size_t at = 0; at < chunk.tensors.size(); ++at) {
    const ModuleName& name = chunk.names[at];
    if (name.name.empty()) continue;
    NamedView param = chunk.tensors[at];
    param.key = concat(chunk.key, ".", param.key);
    param.name = name.layer < 0 ? name.name : concat(name.stack, ".", before[name.stack] + name.layer, ".", name.name);
    // A T5's first stage of the decoder has both embeddings again.
    const auto [first, is_first] = stage_of.emplace(param.name, place.pipeline);
    if (!is_first && first->second == place.pipeline && !name.is_copy)
      refuse(place.file, param.key, "one tensor that is " + param.name, "a second one");
    if (!is_first) param.copy = std::max<int64_t>(place.pipeline, 1);
    checkpoint.shards.push_back({param.name, TensorKind::kWeight, place.tensor, param.copy, param.view, 0, 0,
                                 param.view.num_elements(), true, param.key});
    if (name.is_copy) copy = params.size();
    params.push_back(std::move(param));
  }
  if (copy) put_copy_before_head(params, *copy);
  return params;
}

// All stages of a tensor rank, their tensors named.
std::vector<RankFile> read_stages(int64_t tensor, MegatronCheckpoint& checkpoint) {
  const MegatronFiles& files = checkpoint.files;
  std::vector<RankFile> stages;
  for (int64_t stage = 0; stage < files.pipeline; ++stage) {
    const auto rank = static_cast<size_t>(stage * files.tensor + tensor);
    stages.push_back(read_rank(files.ranks[rank]));
    if (stages.back().chunks.size() != stages[0].chunks.size())
      refuse(files.ranks[rank], "model", concat(stages[0].chunks.size(), " chunks, as stage 0 has"),
             std::to_string(stages.back().chunks.size()));
  }
  if (checkpoint.formats == nullptr) checkpoint.formats = &family_of(stages, files);
  for (RankFile& stage : stages)
    for (Chunk& chunk : stage.chunks) name_tensors(chunk, checkpoint.formats->megatron);
  return stages;
}

}  // namespace

void read_megatron(MegatronCheckpoint& checkpoint, bool with_optimizer) {
  const MegatronFiles& files = checkpoint.files;
  for (int64_t tensor = 0; tensor < files.tensor; ++tensor) {
    const std::vector<RankFile> stages = read_stages(tensor, checkpoint);
    const auto before = layers_before(stages);
    std::map<std::string, int64_t> stage_of;
    for (int64_t stage = 0; stage < files.pipeline; ++stage) {
      const auto rank = static_cast<size_t>(stage * files.tensor + tensor);
      const RankPlace place{files.ranks[rank], {files.tensor, tensor}, stage};
      const RankFile& file = stages[static_cast<size_t>(stage)];
      // The first file of all decides where the run stands.
      read_run_state(file.root, place.file, tensor == 0 && stage == 0 ? 0 : std::max<size_t>(rank, 1), checkpoint);
      std::vector<NamedView> params;
      for (size_t chunk = 0; chunk < file.chunks.size(); ++chunk) {
        const auto of_chunk =
            add_weights(file.chunks[chunk], before[static_cast<size_t>(stage)][chunk], place, stage_of, checkpoint);
        params.insert(params.end(), of_chunk.begin(), of_chunk.end());
      }
      if (with_optimizer) read_optimizer(file.root, params, place, checkpoint);
    }
  }
}

}  // namespace espalier::convert
