#include "kernels/cuda/optimizer_lists.h"

#include <ATen/ATen.h>

#include <cstring>

#include "base/error.h"
#include "kernels/cuda/stream.h"
#include "kernels/internal/optimizer_elements.h"

namespace espalier::cuda {
namespace {

// The device's copy of a list lives as long as this.
template <class Item>
struct ListOnDevice {
  List<Item> list;
  at::Tensor memory;
};

// By one copy, for which nobody waits.
template <class Item>
ListOnDevice<Item> list_on_device(const std::vector<Item>& items) {
  const size_t item_bytes = items.size() * sizeof(Item);
  const at::Tensor host = pinned_bytes(static_cast<int64_t>(item_bytes + (items.size() + 1) * sizeof(int64_t)));
  uint8_t* const bytes = host.mutable_data_ptr<uint8_t>();
  std::memcpy(bytes, items.data(), item_bytes);
  int64_t first_block = 0;
  for (size_t i = 0; i <= items.size(); ++i) {
    std::memcpy(bytes + item_bytes + i * sizeof first_block, &first_block, sizeof first_block);
    if (i < items.size()) first_block += (items[i].count + kListed - 1) / kListed;
  }
  ESPALIER_CHECK(first_block <= INT32_MAX, first_block, " blocks");
  const at::Tensor memory = at::empty(host.sizes(), at::TensorOptions().dtype(at::kByte).device(current_device()));
  memory.copy_(host, /*non_blocking=*/true);
  const uint8_t* const there = memory.const_data_ptr<uint8_t>();
  return {{reinterpret_cast<const Item*>(there), reinterpret_cast<const int64_t*>(there + item_bytes),
           static_cast<int64_t>(items.size()), first_block},
          memory};
}

bool are_aligned(const OptimizerElements& elements, Element type) {
  bool aligned = is_aligned(elements.master) && is_aligned(elements.grad) &&
                 is_aligned(elements.value, type == Element::kFloat ? 16 : 8);
  for (const float* state : elements.states) aligned = aligned && is_aligned(state);
  return aligned;
}

ListedStored listed_stored(const spec::OptimizerKind& kind, const kernels::OptimizerUpdate& update) {
  const kernels::OptimizerTensors& tensors = update.tensors;
  const at::Tensor& runs = tensors.rounding->runs;
  ListedStored listed{.stored = kernels::stored_elements(kind, tensors, update.constants),
                      .runs = runs.const_data_ptr<int64_t>(),
                      .num_runs = runs.size(0),
                      .count = tensors.master.numel()};
  listed.stored.keys.first[0] = tensors.rounding->key.word[0];
  listed.stored.keys.second[0] = tensors.rounding->key.word[1];
  return listed;
}

}  // namespace

void update_all(const spec::OptimizerKind& kind, Element type, const std::vector<kernels::OptimizerUpdate>& updates) {
  const at::ScalarType scalar_type = updates[0].tensors.value.scalar_type();
  std::vector<ListedUpdate> plain;
  std::vector<ListedStored> stored;
  for (const kernels::OptimizerUpdate& update : updates) {
    const kernels::OptimizerTensors& tensors = update.tensors;
    ESPALIER_CHECK(tensors.value.scalar_type() == scalar_type, "values of ", tensors.value.scalar_type(), " beside ",
                   scalar_type);
    if (tensors.master.numel() == 0) continue;
    if (kernels::has_stored_states(tensors)) {
      stored.push_back(listed_stored(kind, update));
    } else {
      const OptimizerElements elements = kernels::optimizer_elements(tensors, update.constants);
      plain.push_back({elements, tensors.master.numel(), are_aligned(elements, type)});
    }
  }
  if (!plain.empty()) optimizer_update(kind.type, type, list_on_device(plain).list, current_stream());
  if (!stored.empty()) optimizer_update_stored(kind.type, type, list_on_device(stored).list, current_stream());
}

std::vector<kernels::Measured> measure_all(const std::vector<kernels::Measure>& of) {
  if (of.empty()) return {};
  std::vector<ListedMeasure> items;
  for (const kernels::Measure& one : of) {
    const float* const values = one.values.const_data_ptr<float>();
    items.push_back({values, one.values.numel(), is_aligned(values)});
  }
  const auto on_device = list_on_device(items);
  constexpr auto kNumbers = static_cast<int64_t>(sizeof(MeasuredParts) / sizeof(double));
  const auto options = at::TensorOptions().dtype(at::kDouble).device(current_device());
  const at::Tensor parts = at::empty({on_device.list.blocks, kNumbers}, options);
  const at::Tensor sums = at::empty({on_device.list.count, kNumbers}, options);
  const auto pointer = [](const at::Tensor& to) {
    return reinterpret_cast<MeasuredParts*>(to.mutable_data_ptr<double>());
  };
  measure(on_device.list, pointer(parts), pointer(sums), current_stream());
  const at::Tensor host = sums.cpu();  // the one wait
  const double* number = host.const_data_ptr<double>();
  std::vector<kernels::Measured> result;
  for (const kernels::Measure& one : of) {
    result.push_back({one.squares ? number[0] : 0, one.zeros ? static_cast<int64_t>(number[1]) : 0,
                      one.not_finite ? static_cast<int64_t>(number[2]) : 0});
    number += kNumbers;
  }
  return result;
}

}  // namespace espalier::cuda
