// How one of our families is stored in Megatron's checkpoints: a value of the family's formats (convert/formats.h).
// Files, ranks, versions and optimizers are the same for all of them.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "store/torch_value.h"

namespace espalier::convert {

class ArgumentLines;

// A parameter's place in the module of a pipeline stage.
struct ModuleName {
  // Of a layer: our name of what it is in ("layers"), and its number within the module.
  std::string stack = {};
  int64_t layer = -1;
  std::string name = {};  // our name, without stack and number; empty: no parameter
  bool is_copy = false;   // of the word embedding, for the output layer of the last stage
};

// Where our parameters whose names begin with `ours` are in the module: in the dict that `path` leads to, under their
// names without `strip`; layers are numbered within the stage.
struct ModuleSection {
  std::string ours = {}, strip = {};
  std::vector<std::string> path = {};
};

// What a model's files depend on.
struct MegatronShape {
  int64_t num_groups = 0;  // heads of keys and values
  int64_t head_size = 0, ffn_hidden_size = 0;
  bool ties_embedding = false;       // the last of several stages has the word embedding once more
  bool activated_half_last = false;  // RowOrder
};

struct MegatronCodec {
  // Whether names of a module's tensors, as they are in files, are those of such a model.
  bool (*recognizes)(const std::set<std::string>& names) = nullptr;
  ModuleName (*module_name)(const std::string& path) = nullptr;
  // In the order in which the module has its parameters; where the copy of the embedding comes, `ours` is empty.
  std::vector<ModuleSection> sections = {};
  MegatronShape (*shape)(const config::RunConfig& run) = nullptr;

  // Attributes that are options of the family, in the order of the lines that they become.
  std::vector<const char*> arguments = {};
  void (*add_lines)(const store::TorchValue& args, ArgumentLines& lines) = nullptr;
  // Those that put_arguments() writes instead of the option's value, and all that other readers look for.
  std::set<std::string> spelled_apart = {};
  void (*put_arguments)(const config::RunConfig& run, store::TorchPairs& pairs) = nullptr;
  // What no argument of Megatron can say of a model.
  std::vector<std::string> (*obstacles)(const config::RunConfig& run) = nullptr;

  bool on_one_rank = false;          // upstream splits the model neither over tensor ranks nor over stages
  bool has_pipeline_module = false;  // DeepSpeed's pipeline engine can train it
};

}  // namespace espalier::convert
