#include "tests/reshape/layout_state.h"

#include <ATen/ATen.h>

#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "families/gpt/config.h"
#include "plan/partition.h"
#include "plan/stage_params.h"
#include "plan/zero_ranges.h"
#include "store/manifest.h"

namespace espalier::test {
namespace {

constexpr const char* kKinds[] = {".master", ".exp_avg", ".exp_avg_sq"};

std::vector<spec::ParamSpec> model_params() {
  families::GptConfig config;
  config.num_layers = 4;
  config.hidden_size = 12;
  config.ffn_hidden_size = 22;
  config.num_attention_heads = 3;
  config.kv_channels = 4;
  config.max_position_embeddings = 7;
  config.vocab_size = 50;
  config.padded_vocab_size = 53;
  config.embed_layernorm = true;
  return families::gpt_params(config);
}

// Bits of an element; NaNs and denormal numbers are among them.
uint32_t bits_of(uint64_t name_hash, int64_t element) {
  return static_cast<uint32_t>((name_hash ^ static_cast<uint64_t>(element)) * 0x9E3779B97F4A7C15u >> 29);
}

// Calls visit(element of the global tensor, its bytes in `values`) for all elements of a part.
template <class Visit>
void for_each_element(const at::Tensor& values, const ckpt::TensorPart& part, const Visit& visit) {
  auto* bytes = static_cast<uint8_t*>(values.mutable_data_ptr());
  const auto size = static_cast<int64_t>(values.element_size());
  for (const spec::Extent& extent : part.extents)
    for (int64_t i = 0; i < extent.count; ++i) visit(extent.global_begin + i, bytes + (extent.local_begin + i) * size);
}

ckpt::TensorToSave tensor_of(const std::string& name, const std::string& file, at::ScalarType type,
                             const ckpt::TensorPart& part) {
  int64_t count = 0;
  for (const spec::Extent& extent : part.extents) count += extent.count;
  ckpt::TensorToSave tensor{name, file, at::zeros({count}, type), part};
  const uint64_t name_hash = hash64(name);
  for_each_element(tensor.value, part, [&](int64_t element, uint8_t* bytes) {
    const uint32_t bits = bits_of(name_hash, element);
    std::memcpy(bytes, &bits, tensor.value.element_size());
  });
  return tensor;
}

}  // namespace

const std::vector<std::string>& all_layouts() {
  static const std::vector<std::string> layouts = {"tp1pp1dp1",
                                                   "tp3",
                                                   "tp4",
                                                   "tp8",
                                                   "pp4",
                                                   "pp2vp2",
                                                   "pp2dp2",
                                                   "dp3zero1",
                                                   "dp8zero2",
                                                   "dp5zero3",
                                                   "tp2pp2dp2zero1",
                                                   "tp2pp2vp2dp2zero1",
                                                   "tp2cp2dp2zero1"};
  return layouts;
}

std::vector<ckpt::TensorToSave> state_of(const plan::Layout& layout, int64_t rank) {
  const spec::GridPosition position = spec::position_of(layout.grid, rank);
  const int64_t num_layers = 4;
  const plan::Partition partition = plan::partition_evenly(num_layers, layout.grid.pipeline, layout.num_chunks);
  const std::vector<spec::ParamSpec> held = plan::stage_params(model_params(), partition, position.pipeline);
  const spec::TensorShard shard{layout.grid.tensor, position.tensor};
  const int64_t num_sharers = layout.grid.data * layout.grid.context;
  const plan::ZeroShape zero{static_cast<plan::ZeroStage>(layout.zero_stage), num_sharers, /*unit_elements=*/256};
  const spec::FlatLayout flat = spec::flat_layout(held, shard, layout.zero_stage == 0 ? 1 : num_sharers);
  std::vector<std::vector<plan::ZeroPiece>> pieces(held.size());
  for (const plan::ZeroPiece& piece :
       plan::zero_pieces(flat, zero, position.data * layout.grid.context + position.context))
    pieces[static_cast<size_t>(piece.param)].push_back(piece);

  std::vector<ckpt::TensorToSave> state;
  for (size_t i = 0; i < held.size(); ++i) {
    const std::string group = spec::stack_depth_name(held[i].depth, num_layers);
    const ckpt::TensorPart all = ckpt::held_part(held[i], shard), own = ckpt::owned_part(all, pieces[i]);
    const bool is_sharded = zero.stage == plan::ZeroStage::kParameters;
    if (!is_sharded || !pieces[i].empty())
      state.push_back(tensor_of(held[i].name, store::weights_file(group), at::kBFloat16, is_sharded ? own : all));
    if (pieces[i].empty()) continue;
    for (const char* kind : kKinds)
      state.push_back(tensor_of(held[i].name + kind, store::optimizer_file(group), at::kFloat, own));
  }
  return state;
}

std::vector<ckpt::TensorRequest> requests_of(const plan::Layout& layout, int64_t rank) {
  std::vector<ckpt::TensorRequest> requests;
  for (const ckpt::TensorToSave& tensor : state_of(layout, rank))
    requests.push_back({tensor.name, at::full_like(tensor.value, 7), tensor.part});
  return requests;
}

std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const spec::ParamSpec& spec : model_params()) {
    names.push_back(spec.name);
    for (const char* kind : kKinds) names.push_back(spec.name + kind);
  }
  return names;
}

void check_loaded(const std::vector<ckpt::TensorRequest>& requests, Seen& seen) {
  for (const ckpt::TensorRequest& request : requests) {
    const uint64_t name_hash = hash64(request.name);
    std::vector<int>& counts = seen[request.name];
    for_each_element(request.destination, *request.part, [&](int64_t element, const uint8_t* bytes) {
      const uint32_t expected = bits_of(name_hash, element);
      if (std::memcmp(bytes, &expected, request.destination.element_size()) != 0)
        throw std::runtime_error(concat(request.name, ": element ", element, " is not what was saved"));
      if (counts.size() <= static_cast<size_t>(element)) counts.resize(static_cast<size_t>(element) + 1);
      ++counts[static_cast<size_t>(element)];
    });
  }
}

void check_whole(const Seen& seen) {
  for (const spec::ParamSpec& spec : model_params())
    for (const char* kind : {"", ".master", ".exp_avg", ".exp_avg_sq"}) {
      const auto found = seen.find(spec.name + kind);
      const int64_t count = found == seen.end() ? 0 : std::ssize(found->second);
      if (count != spec.num_elements() || std::count(found->second.begin(), found->second.end(), 0) > 0)
        throw std::runtime_error(concat(spec.name, kind, ": not every element was loaded"));
    }
}

}  // namespace espalier::test
