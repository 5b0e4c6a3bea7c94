// The machine that a pickle is a program for, with the steps that torch.save and Python's protocols 2 to 5 use.
// Throws Refusal.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "store/internal/pickle_input.h"
#include "store/internal/pickle_objects.h"

namespace espalier::store {

class PickleReader {
 public:
  PickleReader(PickleInput& input, TorchNodes& nodes) : input_(input), nodes_(nodes), objects_(nodes, input) {}

  // Up to and with STOP. What it gives may still contain itself: see finish_tree.
  TorchValue read();

  int64_t step_position() const { return step_position_; }  // of the step that is or was taken last
  const std::map<std::string, StorageUse>& storages() const { return objects_.storages(); }

 private:
  bool take_constant(uint8_t step);
  bool take_number(uint8_t step);
  bool take_text(uint8_t step);
  bool take_container(uint8_t step);
  bool take_memo(uint8_t step);
  bool take_object(uint8_t step);

  void push(TorchValue value);
  TorchValue pop();
  TorchValue& top();
  TorchItems pop_to_mark();
  TorchItems pop_last(size_t count);
  void append(const TorchValue& target, TorchItems items);
  void set_items(const TorchValue& target, const TorchItems& keys_and_values);
  TorchValue long_integer(uint32_t size);

  PickleInput& input_;
  TorchNodes& nodes_;
  PickleObjects objects_;
  std::vector<TorchValue> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, TorchValue> memo_;
  int64_t step_position_ = 0;
  uint64_t pushed_ = 0;
};

// Checks what a pickle gave: no cycles, not too deep, not too many values when each is counted wherever it occurs, keys
// that are plain; then lets a dict hold each key once, as Python does. Releases the nodes of the tree from `nodes`.
void finish_tree(const TorchValue& root, TorchNodes& nodes);

}  // namespace espalier::store
