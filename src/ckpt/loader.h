// Reads a checkpoint into tensors of any layout, all of it or nothing that could be mistaken for it.
//
//   LoadedCheckpoint checkpoint(folder);                        // manifest only
//   checkpoint.load(requests, LoadedCheckpoint::Part::kAll);    // names, shapes, types first; then blocks, checked
//
// A rank asks for the parts that it holds; which layout wrote the checkpoint does not matter. Alone it reads the blocks
// that overlap its parts; the ranks of a group together read each block once, and give each other the parts. A block is
// checked whole by whoever reads it. Types are never converted. What is missing, unused, of another
// shape, or damaged is a UserError that names tensor and file, and lists all of them; where something is damaged it
// is a DamagedCheckpoint and also lists the run's other complete steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "ckpt/local_tensor.h"
#include "dist/group.h"
#include "store/step_reader.h"

namespace espalier::ckpt {

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

  // As StepReader's.
  void use_cache(store::PageCache how) { reader_.use_cache(how); }

  // Nothing is read unless every request fits. A damaged block is found while reading: the destinations are then
  // partly written and the caller must not continue.
  //
  // `all_names`: the tensors that the ranks of the layout hold among them, for each rank to see what is missing or
  // unused in the whole; the requests' own where there is one rank.
  void load(const std::vector<TensorRequest>& requests, Part part, const std::vector<std::string>& all_names = {});

  // The same by all ranks of a group; what none of them asks for counts as unused. Collective: every error of one rank
  // is thrown on all.
  void load_together(const std::vector<TensorRequest>& requests, Part part, const dist::Group& group);

  // One tensor, in the type in which it was stored.
  at::Tensor read(const std::string& name);
  // Elements of one, in the order of the extents' local offsets, flat.
  at::Tensor read(const std::string& name, const std::vector<spec::Extent>& extents);
  // A file of the checkpoint's tokenizer/ or the like.
  std::string read_extra_file(const std::string& path) const;
  // Of those whose path begins so, what exists is complete.
  void check_extra_files(const std::string& prefix) const;

  // Bytes of tensors that this process has read so far: whole blocks.
  int64_t bytes_read() const { return bytes_read_; }

 private:
  store::StepReader reader_;
  int64_t bytes_read_ = 0;
};

}  // namespace espalier::ckpt
