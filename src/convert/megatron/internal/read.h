// Steps of read_megatron_checkpoint that formats share.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convert/megatron/checkpoint.h"
#include "convert/megatron/codec.h"

namespace espalier::convert {

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& key, const std::string& expected,
                         const std::string& found);

// A tensor of a file under the name that files give it, in the order of the file.
struct NamedView {
  std::string name;  // ours
  store::TensorView view;
  std::string key;
  int64_t copy = 0;  // MegatronShard
};

// What Transformer Engine keeps besides a module's parameters (of fp8): a tensor, bytes, or an io.BytesIO.
bool is_extra_state(const std::string& name);

// "word_embeddings.weight", of a tower too.
bool is_word_embedding(const std::string& parameter);

std::string without_prefix(const std::string& text, const std::string& prefix);

// Of a name without what it is in: the number of its layer ("layers.3.") and the rest.
ModuleName layer_or_other_name(const std::string& name);

// Our name for a parameter of a transformer layer or after it, from any of the spellings that releases of Megatron
// used; "" for buffers and states that are not parameters.
std::string layer_parameter_name(const std::string& name);

// Iteration, consumed samples and tokens, scheduler, loss scale, arguments: of the first rank; the others must agree.
void read_run_state(const store::TorchValue& root, const std::filesystem::path& file, size_t model_rank,
                    MegatronCheckpoint& checkpoint);

// Of a value that must be a list or tuple, or a dict. `what` names it for messages: "FILE: KEY".
const store::TorchItems& items_of(const store::TorchValue& value, const std::string& what);
const store::TorchPairs& pairs_of(const store::TorchValue& value, const std::string& what);

// The number in a tensor of one element, or a plain number.
double number_in(const store::TorchValue& value, const std::string& what);

// Parameters of a module that Megatron's and DeepSpeed's optimizers keep in this order: those with weight decay, then
// biases and norms, each in the module's order.
std::vector<NamedView> in_optimizer_order(const std::vector<NamedView>& params);

// State of a torch optimizer with one tensor for each parameter of `params` (in the optimizer's order), and the master
// weights `masters`, if it keeps any besides them.
struct RankPlace {
  std::filesystem::path file;
  spec::TensorShard tensor;
  int64_t pipeline = 0;
};
void read_tensor_states(const store::TorchValue& optimizer, const std::vector<store::TorchValue>& masters,
                        const std::vector<NamedView>& params, const RankPlace& place, MegatronCheckpoint& checkpoint);

// Adam's number of steps from a torch optimizer's state dict.
std::optional<int64_t> adam_steps(const store::TorchValue& optimizer);
void set_optimizer_steps(int64_t steps, const std::filesystem::path& file, MegatronCheckpoint& checkpoint);

// Formats.
void read_megatron(MegatronCheckpoint& checkpoint, bool with_optimizer);
void read_deepspeed(MegatronCheckpoint& checkpoint, bool with_optimizer);
void read_universal(MegatronCheckpoint& checkpoint, bool with_optimizer);

// What DeepSpeed's layer files are, by their numbers: from their keys.
class LayerRoles {
 public:
  void add(int64_t number, const std::vector<std::string>& keys, const std::filesystem::path& file);
  // Numbers transformer layers from 0, in the order of the files.
  void finish();
  int64_t num_layers() const { return static_cast<int64_t>(transformer_.size()); }
  // Our name of a key of layer `number`, "" for what is not a parameter.
  std::string name_of(int64_t number, const std::string& key) const;
  // Of a parameter of the pipeline module: "3.input_layernorm.weight", "tied_modules.embed.word_embeddings.weight".
  // Nothing: the layer is unknown.
  std::optional<std::string> name_of(const std::string& parameter) const;

 private:
  enum class Role { kEmbedding, kTransformer, kFinalNorm, kHead };
  std::map<int64_t, Role> roles_;
  std::map<int64_t, int64_t> transformer_;  // number of the file -> number of the layer
};

}  // namespace espalier::convert
