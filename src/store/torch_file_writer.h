// Writes a tree of values as torch.save does: a zip file with data.pkl, stored entries, tensors aligned to 64 bytes.
//
// torch.load reads it; with weights_only=True as long as the tree has only what that takes (values, tensors,
// OrderedDict, torch.Size, dtypes). Tensors are asked for one after another while the file is written, so what is in
// memory is the tree and what a TensorSource holds. A tensor that occurs in the tree twice (TorchValue::is) is stored
// once and shared. The file appears under its name when it is complete and on the disk.
#pragma once

#include <filesystem>

#include "store/torch_value.h"

namespace espalier::store {

void write_torch_file(const std::filesystem::path& path, const TorchValue& root);

}  // namespace espalier::store
