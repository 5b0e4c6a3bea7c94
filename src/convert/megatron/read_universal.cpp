// DeepSpeed's universal checkpoint: one folder for each parameter, with whole fp32 tensors.
#include <regex>

#include "base/error.h"
#include "base/format.h"
#include "convert/megatron/internal/read.h"
#include "store/torch_file.h"

namespace espalier::convert {
namespace {

using store::TorchValue;

std::optional<int64_t> argument(const TorchValue& args, const char* name) {
  const TorchValue* value = args.is_none() ? nullptr : args.find(name);
  if (value == nullptr || value->kind() != TorchValue::Kind::kInt) return std::nullopt;
  return value->as_int(name);
}

// "6.weight" -> 6 and "weight"
std::optional<std::pair<int64_t, std::string>> numbered(const std::string& parameter) {
  static const std::regex pattern(R"((\d{1,6})\.(.+))");
  std::smatch match;
  if (!std::regex_match(parameter, match, pattern)) return std::nullopt;
  return std::pair{std::stoll(match[1]), match[2].str()};
}

LayerRoles roles_of(const MegatronFiles& files) {
  std::map<int64_t, std::vector<std::string>> keys;
  for (const auto& [parameter, kinds] : files.parameters)
    if (const auto found = numbered(parameter)) keys[found->first].push_back(found->second);
  LayerRoles roles;
  for (const auto& [number, of_layer] : keys) roles.add(number, of_layer, files.folder / "zero");
  roles.finish();
  return roles;
}

// Conversion tools joined some tensors of all tensor ranks as they came: every rank's copy of the positions, and of
// gated layers each rank's two halves. Those are read as the ranks' parts again.
int64_t num_joined_parts(const std::string& name, const TorchValue& file, const store::TensorView& view,
                         const TorchValue& args) {
  const int64_t tensor = argument(args, "tensor_model_parallel_size").value_or(1);
  if (tensor == 1 || view.shape.empty()) return 1;
  if (name == "position_embeddings.weight") {
    const auto positions = argument(args, "max_position_embeddings");
    return positions && view.shape[0] == tensor * *positions ? tensor : 1;
  }
  const TorchValue* gated = args.find("glu_activation");
  const bool is_gated = gated != nullptr && gated->is_string();
  const bool is_regrouped = file.is_dict() && file.find("param_n_sub_params") != nullptr;
  return is_gated && !is_regrouped && name.find("dense_h_to_4h") != std::string::npos ? tensor : 1;
}

void add_parameter(MegatronCheckpoint& checkpoint, const std::string& name, TensorKind kind,
                   const std::filesystem::path& path) {
  const TorchValue file = store::read_torch_file(path);
  const TorchValue& value = file.is_tensor() ? file : file.at("param");
  const store::TensorView& view = value.as_view(path.string() + ": param");
  const int64_t parts = num_joined_parts(name, file, view, checkpoint.args);
  const bool are_copies = name == "position_embeddings.weight";
  for (int64_t part = 0; part < parts; ++part) {
    store::TensorView own = view;
    if (parts > 1) own = store::rows_of(view, part * view.shape[0] / parts, (part + 1) * view.shape[0] / parts);
    const spec::TensorShard place{are_copies ? 1 : parts, are_copies ? 0 : part};
    const auto add = [&](TensorKind as) {
      checkpoint.shards.push_back(
          {name, as, place, are_copies ? part : 0, own, 0, 0, own.num_elements(), true, "param"});
    };
    add(kind);
    // There is no tensor of the compute type: the weights are the rounded fp32 ones.
    if (kind == TensorKind::kMaster) add(TensorKind::kWeight);
  }
}

}  // namespace

void read_universal(MegatronCheckpoint& checkpoint, bool with_optimizer) {
  const MegatronFiles& files = checkpoint.files;
  for (size_t rank = 0; rank < files.ranks.size(); ++rank)
    read_run_state(store::read_torch_file(files.ranks[rank]), files.ranks[rank], rank, checkpoint);
  const LayerRoles roles = roles_of(files);
  std::optional<int64_t> steps;
  for (const auto& [parameter, kinds] : files.parameters) {
    const auto name = roles.name_of(parameter);
    if (!name)
      refuse(files.folder / "zero", parameter, "a parameter of a numbered layer, or of tied_modules.embed",
             "that name");
    if (name->empty()) continue;
    add_parameter(checkpoint, *name, TensorKind::kMaster, kinds.at("fp32"));
    if (!with_optimizer) continue;
    add_parameter(checkpoint, *name, TensorKind::kExpAvg, kinds.at("exp_avg"));
    add_parameter(checkpoint, *name, TensorKind::kExpAvgSq, kinds.at("exp_avg_sq"));
    if (const auto step = kinds.find("step"); step != kinds.end() && !steps)
      steps = static_cast<int64_t>(number_in(store::read_torch_file(step->second), step->second.string()));
  }
  if (!with_optimizer) return;
  if (!steps) {
    steps = checkpoint.state.step - checkpoint.state.skipped_steps;
    checkpoint.remarks.push_back(concat("the checkpoint does not say how many steps Adam has made: taken as ", *steps,
                                        ", the iterations that were not skipped"));
  }
  set_optimizer_steps(*steps, files.folder, checkpoint);
}

}  // namespace espalier::convert
