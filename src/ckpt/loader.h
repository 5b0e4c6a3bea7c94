// Reads a checkpoint into tensors, all of it or nothing that could be mistaken for it.
//
//   LoadedCheckpoint checkpoint(folder);                        // manifest only
//   checkpoint.load(requests, LoadedCheckpoint::Part::kAll);    // names, shapes, types first; then blocks, checked
//
// Types are never converted. What is missing, unused, of another shape, or damaged is a UserError that names tensor
// and file, and lists all of them; where something is damaged it also lists the run's other complete steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "store/step_reader.h"

namespace espalier::ckpt {

struct TensorRequest {
  std::string name;
  at::Tensor destination;  // contiguous, on the CPU; global shape
};

class LoadedCheckpoint {
 public:
  enum class Part {
    kWeights,  // every weight must be asked for; optimizer state may be
    kAll,      // every tensor must be asked for
    kSome,     // the rest is ignored
  };

  explicit LoadedCheckpoint(const std::filesystem::path& step_folder);

  const store::Manifest& manifest() const { return reader_.manifest(); }
  const store::TrainingState& state() const { return manifest().state; }
  const std::filesystem::path& folder() const { return reader_.folder(); }
  bool has(const std::string& name) const { return manifest().find(name) != nullptr; }

  // Nothing is read unless every request fits. A damaged block is found while reading: the destinations are then
  // partly written and the caller must not go on.
  void load(const std::vector<TensorRequest>& requests, Part part);

  // One tensor, in the type in which it was stored.
  at::Tensor read(const std::string& name);
  // A file of the checkpoint's tokenizer/ or the like.
  std::string read_extra_file(const std::string& path) const { return reader_.read_extra_file(path); }

 private:
  store::StepReader reader_;
};

}  // namespace espalier::ckpt
