// The globals that a pickle of torch.save may name: nothing else is accepted.
#pragma once

#include <optional>
#include <string>

#include "store/safetensors.h"

namespace espalier::store {

// What becomes of a call of a global.
enum class GlobalRole {
  kRecord,            // an inert record of the class
  kConstant,          // stands for itself and is not called
  kStorageType,       // torch.FloatStorage: the type of a storage
  kRebuildTensor,     // (storage, offset, size, stride, ...)
  kRebuildParameter,  // (tensor, ...)
  kRebuildFromType,   // (function, type, arguments, state)
  kSize,
  kOrderedDict,
  kDefaultDict,
  kDict,
  kList,  // list, collections.deque
  kTuple,
  kSet,
  kBytes,              // bytes, bytearray
  kEncode,             // (text, "latin1"): bytes in protocol 2
  kMember,             // getattr(class, name): how Python 3.11 saves a member of an enum
  kReconstructObject,  // (class, object, None): protocols 0 and 1
  kReconstructArray,   // numpy: an array that BUILD fills
  kFromBuffer,         // numpy: (bytes, dtype, shape, order)
  kScalar,             // numpy: (dtype, bytes)
};

struct Global {
  std::string name;  // the one it goes by here, whichever version of Python or numpy wrote it
  GlobalRole role;
};

std::optional<Global> find_global(const std::string& module, const std::string& name);
// Of a name that find_global gave; nothing for the member of an enum.
std::optional<GlobalRole> role_of_global(const std::string& name);
inline bool is_record_class(const std::string& name) { return role_of_global(name) == GlobalRole::kRecord; }
// "torch.BFloat16Storage" -> kBFloat16
std::optional<DType> storage_dtype(const std::string& name);
// kBFloat16 -> "BFloat16Storage"
std::string storage_class_name(DType dtype);

}  // namespace espalier::store
