// Reads files of torch.save without Python: the zip format (torch 1.6 and later) and the one before it.
//
// A pickle is a program; here only those of its steps that build plain values, tensors and a short list of classes that
// checkpoints hold are accepted (docs/torch-files.md), and none of them runs anything. Everything else is refused: a
// global that is not on the list by its name, compressed or encrypted entries, big-endian files, anything that is
// outside the file. Errors are UserErrors (kBadData) with file, byte offset, expected and found.
//
// Memory: the tree without the tensors, which stay in the file as views.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "store/torch_value.h"

namespace espalier::store {

TorchValue read_torch_file(const std::filesystem::path& path);

// The tensors of a file that is one dict of names and tensors (pytorch_model.bin). Anything else in it is refused.
std::map<std::string, TensorView> read_torch_state_dict(const std::filesystem::path& path);

}  // namespace espalier::store
