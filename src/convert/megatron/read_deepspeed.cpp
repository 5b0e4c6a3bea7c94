// DeepSpeed's pipeline layout: a file for each layer and tensor rank, one for each model rank, and under ZeRO or bf16
// one for each model and data rank with its part of flat fp32 groups.
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/format.h"
#include "convert/megatron/internal/read.h"
#include "store/torch_file.h"

namespace espalier::convert {
namespace {

using store::TorchValue;
namespace fs = std::filesystem;

bool is_tied_copy(const std::string& name, int64_t pipeline) {
  return pipeline > 0 && (name.starts_with("word_embeddings.") || name.starts_with("position_embeddings."));
}

// A part of a flat fp32 group, with its moments.
struct FlatPart {
  store::TensorView master, exp_avg, exp_avg_sq;
  std::string key;
};

class DeepSpeedReader {
 public:
  explicit DeepSpeedReader(MegatronCheckpoint& checkpoint) : checkpoint_(checkpoint), files_(checkpoint.files) {}

  void read_layers() {
    for (const auto& [number, paths] : files_.layers) {
      std::vector<std::string> keys;
      for (size_t tensor = 0; tensor < paths.size(); ++tensor) {
        auto& tensors = layers_[{number, static_cast<int64_t>(tensor)}];
        const TorchValue root = store::read_torch_file(paths[tensor]);
        if (!root.is_dict()) refuse(paths[tensor], "(root)", "a dict of tensors", root.describe());
        for (const auto& [key, value] : root.pairs())
          if (key.is_string() && value.is_tensor() && !is_extra_state(key.as_string("")))
            tensors.emplace_back(key.as_string("a key"), value.view());
        if (tensor > 0) continue;
        for (const auto& [key, view] : tensors) keys.push_back(key);
      }
      roles_.add(number, keys, paths[0]);
    }
    roles_.finish();
    for (const auto& [place, tensors] : layers_)
      for (const auto& [key, view] : tensors) {
        const std::string name = roles_.name_of(place.first, key);
        if (name.empty()) continue;
        checkpoint_.shards.push_back(
            {name, TensorKind::kWeight, {files_.tensor, place.second}, 0, view, 0, 0, view.num_elements(), true, key});
      }
  }

  void read_ranks(bool with_optimizer) {
    for (size_t rank = 0; rank < files_.ranks.size(); ++rank) {
      const TorchValue root = store::read_torch_file(files_.ranks[rank]);
      read_run_state(root, files_.ranks[rank], rank, checkpoint_);
      check_data_ranks(root, rank);
      if (!with_optimizer) continue;
      const TorchValue* shapes = root.find("param_shapes");
      if (!files_.optimizer.empty())
        read_partitions(rank, shapes != nullptr && shapes->is_sequence() ? shapes : nullptr);
      else if (const TorchValue* optimizer = root.find("optimizer"); optimizer != nullptr && optimizer->is_dict())
        read_whole_optimizer(*optimizer, rank);
    }
  }

 private:
  RankPlace place_of(size_t rank, const fs::path& file) const {
    return {file, {files_.tensor, files_.tensor_rank(rank)}, files_.pipeline_rank(rank)};
  }

  void check_data_ranks(const TorchValue& root, size_t rank) const {
    const TorchValue* size = root.find("dp_world_size");
    if (size == nullptr || size->is_none() || files_.optimizer.empty()) return;
    const int64_t expected = size->as_int(files_.ranks[rank].string() + ": dp_world_size");
    if (expected != files_.data)
      refuse(files_.ranks[rank], "dp_world_size", concat(files_.data, ", the data ranks with *zero_pp_rank_* files"),
             concat(expected, expected > files_.data ? ". Files of some ranks are missing" : ""));
  }

  // ---- ZeRO and bf16

  void read_partitions(size_t rank, const TorchValue* param_shapes) {
    std::map<std::string, int64_t> done;  // elements of each parameter that earlier data ranks have
    std::vector<int64_t> group_begin;     // of this rank's partition within each group
    for (size_t data = 0; data < files_.optimizer[rank].size(); ++data) {
      const fs::path& path = files_.optimizer[rank][data];
      const TorchValue root = store::read_torch_file(path);
      const TorchValue& optimizer = root.at("optimizer_state_dict");
      check_partition_count(optimizer, path);
      const std::vector<FlatPart> parts = flat_parts(optimizer, path);
      group_begin.resize(parts.size(), 0);
      const TorchValue* mappings = optimizer.find("param_slice_mappings");
      for (size_t group = 0; group < parts.size(); ++group) {
        if (mappings != nullptr && mappings->is_sequence()) {
          if (group >= mappings->items().size())
            refuse(path, "param_slice_mappings", concat(parts.size(), " groups"),
                   std::to_string(mappings->items().size()));
          read_mapped(mappings->items()[group], parts[group], rank, path, done);
        } else {
          read_by_shapes(param_shapes, group, group_begin[group], parts[group], rank);
        }
        group_begin[group] += parts[group].master.num_elements();
      }
      read_step(optimizer, path);
      if (rank == 0 && data == 0) read_loss_scale(optimizer, path);
    }
  }

  void check_partition_count(const TorchValue& optimizer, const fs::path& path) const {
    const TorchValue* counts = optimizer.find("partition_count");
    if (counts == nullptr || !counts->is_sequence()) return;
    for (const TorchValue& count : counts->items())
      if (count.as_int(path.string() + ": partition_count") != files_.data)
        refuse(path, "partition_count", concat(files_.data, ", the data ranks with files"), count.describe());
  }

  std::vector<FlatPart> flat_parts(const TorchValue& optimizer, const fs::path& path) const {
    const TorchValue& masters = optimizer.at("single_partition_of_fp32_groups");
    const TorchValue& base = optimizer.at("base_optimizer_state");
    std::vector<FlatPart> parts;
    const std::string masters_key = path.string() + ": optimizer_state_dict.single_partition_of_fp32_groups";
    for (size_t group = 0; group < items_of(masters, masters_key).size(); ++group) {
      const std::string key = concat("optimizer_state_dict.single_partition_of_fp32_groups[", group, "]");
      FlatPart part;
      part.key = key;
      part.master = masters.items()[group].as_view(path.string() + ": " + key);
      const TorchValue* state = nullptr;
      if (base.is_sequence())  // of an elastic checkpoint
        state = group < base.items().size() ? &base.items()[group] : nullptr;
      else if (const TorchValue* states = base.find("state"))
        state = states->find(static_cast<int64_t>(group));
      const std::string where = concat("optimizer_state_dict.base_optimizer_state.state[", group, "]");
      if (state == nullptr || !state->is_dict()) {
        if (part.master.num_elements() == 0) {
          parts.push_back(part);
          continue;
        }
        refuse(path, where, "exp_avg and exp_avg_sq", "nothing");
      }
      part.exp_avg = state->at("exp_avg").as_view(path.string() + ": " + where + ".exp_avg");
      part.exp_avg_sq = state->at("exp_avg_sq").as_view(path.string() + ": " + where + ".exp_avg_sq");
      for (const store::TensorView* view : {&part.exp_avg, &part.exp_avg_sq})
        if (view->num_elements() < part.master.num_elements())
          refuse(path, where, concat(part.master.num_elements(), " elements, as the fp32 weights have"),
                 std::to_string(view->num_elements()));
      parts.push_back(part);
    }
    return parts;
  }

  void add(const std::string& name, const FlatPart& part, int64_t begin, int64_t local_begin, int64_t count,
           size_t rank, const std::string& parameter) {
    if (count == 0) return;
    const int64_t pipeline = files_.pipeline_rank(rank);
    if (is_tied_copy(name, pipeline) && name != "word_embeddings.weight")
      return;  // of the head's copy nothing else is used
    const int64_t copy = is_tied_copy(name, pipeline) ? pipeline : 0;
    const spec::TensorShard tensor{files_.tensor, files_.tensor_rank(rank)};
    const std::string key = part.key + " (" + parameter + ")";
    checkpoint_.shards.push_back(
        {name, TensorKind::kMaster, tensor, copy, part.master, begin, local_begin, count, false, key});
    checkpoint_.shards.push_back(
        {name, TensorKind::kExpAvg, tensor, copy, part.exp_avg, begin, local_begin, count, false, key});
    checkpoint_.shards.push_back(
        {name, TensorKind::kExpAvgSq, tensor, copy, part.exp_avg_sq, begin, local_begin, count, false, key});
  }

  std::string our_name(const std::string& parameter, const fs::path& path) const {
    const auto name = roles_.name_of(parameter);
    if (!name)
      refuse(path, "param_slice_mappings", "a parameter of a layer that has a layer_* file", "'" + parameter + "'");
    return *name;
  }

  void read_mapped(const TorchValue& mapping, const FlatPart& part, size_t rank, const fs::path& path,
                   std::map<std::string, int64_t>& done) {
    for (const auto& [key, address] : pairs_of(mapping, path.string() + ": param_slice_mappings[]")) {
      const std::string parameter = key.as_string(path.string() + ": a key of param_slice_mappings");
      const std::string what = path.string() + ": param_slice_mappings." + parameter;
      // fragment_address(numel, start): as attributes, or as it is called
      const bool is_call = address.find("start") == nullptr && address.kind() == TorchValue::Kind::kRecord &&
                           address.items().size() == 2;
      const int64_t begin = (is_call ? address.items()[1] : address.at("start")).as_int(what + ".start");
      const int64_t count = (is_call ? address.items()[0] : address.at("numel")).as_int(what + ".numel");
      const int64_t available = part.master.num_elements();
      if (begin < 0 || count < 0 || begin > available || count > available - begin)
        refuse(path, concat(part.key, " (", parameter, ")"), concat(count, " elements from ", begin, " on"),
               concat(available, " in all"));
      const std::string name = our_name(parameter, path);
      if (!name.empty()) add(name, part, begin, done[parameter], count, rank, parameter);
      done[parameter] += count;
    }
  }

  // Before DeepSpeed kept the mapping: parameters follow one another in the order of param_shapes.
  void read_by_shapes(const TorchValue* param_shapes, size_t group, int64_t partition_begin, const FlatPart& part,
                      size_t rank) {
    if (param_shapes == nullptr || group >= param_shapes->items().size())
      refuse(files_.ranks[rank], "param_shapes", concat("names and shapes of group ", group),
             "nothing, and the optimizer's files have no param_slice_mappings either");
    const int64_t partition_end = partition_begin + part.master.num_elements();
    int64_t param_begin = 0;
    for (const auto& [key, shape] :
         pairs_of(param_shapes->items()[group], files_.ranks[rank].string() + ": param_shapes[]")) {
      const std::string parameter = key.as_string("a key of param_shapes");
      const int64_t count =
          store::num_elements(shape.as_ints(files_.ranks[rank].string() + ": param_shapes." + parameter));
      const int64_t begin = std::max(param_begin, partition_begin), end = std::min(param_begin + count, partition_end);
      const std::string name = our_name(parameter, files_.ranks[rank]);
      if (begin < end && !name.empty())
        add(name, part, begin - partition_begin, begin - param_begin, end - begin, rank, parameter);
      param_begin += count;
    }
  }

  void read_step(const TorchValue& optimizer, const fs::path& path) {
    if (const TorchValue* step = optimizer.find("base_optimizer_state_step"); step != nullptr && !step->is_none())
      return set_optimizer_steps(static_cast<int64_t>(number_in(*step, path.string() + ": base_optimizer_state_step")),
                                 path, checkpoint_);
    const TorchValue& base = optimizer.at("base_optimizer_state");
    std::optional<int64_t> steps;
    if (base.is_dict()) {
      steps = adam_steps(base);
    } else {
      for (const TorchValue& state : items_of(base, path.string() + ": base_optimizer_state"))
        if (const TorchValue* step = state.find("step"); step != nullptr && !step->is_none())
          steps = static_cast<int64_t>(number_in(*step, path.string() + ": step"));
    }
    if (!steps) {  // written by an Adam that does not say
      steps = checkpoint_.state.step - checkpoint_.state.skipped_steps;
      if (!checkpoint_.has_optimizer)
        checkpoint_.remarks.push_back(concat("the optimizer's files have no count of steps: taken as ", *steps,
                                             ", the iterations that were not skipped"));
    }
    set_optimizer_steps(*steps, path, checkpoint_);
  }

  void read_loss_scale(const TorchValue& optimizer, const fs::path& path) {
    const TorchValue* scaler = optimizer.find("loss_scaler");
    if (scaler == nullptr || scaler->kind() != TorchValue::Kind::kRecord || scaler->find("cur_scale") == nullptr)
      return;
    const auto number = [&](const char* key, int64_t otherwise) {
      const TorchValue* value = scaler->find(key);
      return value == nullptr || value->is_none()
                 ? otherwise
                 : static_cast<int64_t>(number_in(*value, path.string() + ": loss_scaler." + key));
    };
    store::TrainingState& state = checkpoint_.state;
    state.loss_scale = number_in(*scaler->find("cur_scale"), path.string() + ": loss_scaler.cur_scale");
    const int64_t window = number("scale_window", 0);
    if (window <= 0) return;  // a constant scale
    // DeepSpeed counts iterations, and doubles one later than Megatron, which counts clean ones since the last change.
    state.loss_scale_growth_tracker =
        std::max<int64_t>(number("cur_iter", 0) - number("last_overflow_iter", -1) - 2, 0) % window;
    state.loss_scale_hysteresis_tracker = number("cur_hysteresis", 1);
  }

  // ---- neither: the whole state of the rank next to its other numbers

  // Parameters in the order of the module: the tied embedding, then the layers of the stage.
  std::vector<NamedView> module_order(size_t rank) const {
    const int64_t pipeline = files_.pipeline_rank(rank), tensor = files_.tensor_rank(rank);
    const std::set<int64_t> own = layers_of_stage(pipeline);
    std::vector<NamedView> params;
    for (const auto& [place, tensors] : layers_) {
      if (place.second != tensor) continue;
      const bool is_embedding =
          !tensors.empty() && roles_.name_of(place.first, tensors[0].first) == "word_embeddings.weight";
      if (!own.contains(place.first) && !(is_embedding && pipeline == files_.pipeline - 1)) continue;
      for (const auto& [key, view] : tensors) {
        const std::string name = roles_.name_of(place.first, key);
        if (!own.contains(place.first) && name.starts_with("word_embeddings.norm"))
          continue;  // only on the first stage
        const int64_t copy = name == "word_embeddings.weight" ? pipeline : 0;
        if (!name.empty()) params.push_back({name, view, key, copy});
      }
    }
    return params;
  }

  // Stages have equally many transformer layers unless told otherwise; what is before and after goes to the ends.
  std::set<int64_t> layers_of_stage(int64_t pipeline) const {
    const int64_t layers = roles_.num_layers(), share = layers / files_.pipeline;
    if (share * files_.pipeline != layers)
      throw UserError(concat(files_.folder.string(), ": ", layers, " layers on ", files_.pipeline,
                             " stages, and the optimizer's state has no names: it is unknown which stage has which "
                             "layers. Import the weights alone with --no-load-optim."),
                      ExitCode::kBadData);
    std::set<int64_t> own;
    int64_t seen = 0;
    for (const auto& [number, paths] : files_.layers) {
      const std::string name = first_name(number);
      const bool is_transformer = name.starts_with("layers.");
      int64_t stage = seen == 0 ? 0 : files_.pipeline - 1;
      if (is_transformer) stage = seen++ / share;
      if (stage == pipeline) own.insert(number);
    }
    return own;
  }

  std::string first_name(int64_t number) const {
    const auto& tensors = layers_.at({number, 0});
    return tensors.empty() ? "" : roles_.name_of(number, tensors[0].first);
  }

  void read_whole_optimizer(const TorchValue& optimizer, size_t rank) {
    const RankPlace place = place_of(rank, files_.ranks[rank]);
    std::vector<NamedView> params = in_optimizer_order(module_order(rank));
    checkpoint_.order_is_inferred = true;
    if (optimizer.find("state") == nullptr)
      refuse(place.file, "optimizer", "a torch optimizer's state, or files *zero_pp_rank_* next to it",
             "DeepSpeed's fp16 optimizer without ZeRO, which this program does not read. Import the weights alone with "
             "--no-load-optim");
    // fp32: the weights are the master weights. The copy of the embedding's other tensors counts and is left out.
    MegatronCheckpoint of_rank;
    of_rank.has_optimizer = checkpoint_.has_optimizer;
    of_rank.state = checkpoint_.state;
    read_tensor_states(optimizer, {}, params, place, of_rank);
    checkpoint_.state = of_rank.state;
    checkpoint_.has_optimizer = true;
    for (MegatronShard& shard : of_rank.shards) {
      const bool is_other_copy = is_tied_copy(shard.param, place.pipeline) && shard.copy == 0;
      if (!is_other_copy) checkpoint_.shards.push_back(std::move(shard));
    }
  }

  MegatronCheckpoint& checkpoint_;
  const MegatronFiles& files_;
  LayerRoles roles_;
  std::map<std::pair<int64_t, int64_t>, std::vector<std::pair<std::string, store::TensorView>>> layers_;
};

}  // namespace

void read_deepspeed(MegatronCheckpoint& checkpoint, bool with_optimizer) {
  DeepSpeedReader reader(checkpoint);
  reader.read_layers();
  reader.read_ranks(with_optimizer);
}

}  // namespace espalier::convert
