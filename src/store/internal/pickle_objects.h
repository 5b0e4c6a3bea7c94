// What the calls of a pickle make: the globals of pickle_globals.h applied to arguments. Throws Refusal.
#pragma once

#include <map>
#include <string>

#include "store/internal/pickle_input.h"
#include "store/internal/torch_nodes.h"

namespace espalier::store {

// A storage as the tensors of a pickle name it. Its place is found after the pickle.
struct StorageUse {
  DType dtype = DType::kFloat32;
  int64_t numel = 0;
};

class PickleObjects {
 public:
  // The input is asked how much of it was read.
  PickleObjects(TorchNodes& nodes, const PickleInput& input) : nodes_(nodes), input_(input) {}

  TorchValue global(const std::string& module, const std::string& name);
  TorchValue call(const TorchValue& callable, const TorchValue& arguments);    // REDUCE
  TorchValue new_object(const TorchValue& type, const TorchValue& arguments);  // NEWOBJ
  void set_state(const TorchValue& object, const TorchValue& state);           // BUILD
  TorchValue storage(const TorchValue& id);                                    // BINPERSID

  const std::map<std::string, StorageUse>& storages() const { return storages_; }

 private:
  TorchValue member(const TorchItems& arguments);
  TorchValue rebuild_tensor(const TorchItems& arguments);
  TorchValue rebuild_from_type(const TorchItems& arguments);
  TorchValue ordered_dict(const TorchItems& arguments);
  TorchValue encode(const TorchItems& arguments);
  TorchValue to_bytes(const TorchItems& arguments);
  // A call copies from its arguments, which a few bytes of pickle can name again and again.
  void charge(size_t copied);

  TorchNodes& nodes_;
  const PickleInput& input_;
  uint64_t copied_ = 0;
  std::map<std::string, StorageUse> storages_;
};

}  // namespace espalier::store
