// Writes one step folder so that a crash at any moment leaves the older checkpoints whole and this one either complete
// or plainly unfinished.
//
// Everything goes to `step_N.partial/`: safetensors files block by block with their checksums, other files, the
// manifest last; each is fsynced, then the folder; the rename to `step_N` makes it a checkpoint; the run folder is
// fsynced. Nothing that exists is written to. A failure removes the partial folder and throws a UserError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "store/manifest.h"

namespace espalier::store {

// A whole tensor in memory, row-major. The data is not owned.
struct TensorData {
  std::string name;
  std::string file;  // weights_file(group) or optimizer_file(group)
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
};

// A small file that travels with the checkpoint, whole: {"tokenizer/vocab.json", "{...}"}.
struct ExtraFile {
  std::string path;  // within the step folder
  std::string content;
};

// The manifest's `model`, `state` and `config` are the caller's; `files` and `tensors` are filled in.
// Returns the manifest as written. The folder of step N must not exist yet; a partial one of an earlier attempt is
// replaced.
Manifest write_step(const std::filesystem::path& run_folder, Manifest manifest, const std::vector<TensorData>& tensors,
                    const std::vector<ExtraFile>& extra_files);

// Throws UserError (kCannotCreate) with both figures when the file system of `run_folder` has less than `needed_bytes`
// free for this user.
void check_free_space(const std::filesystem::path& run_folder, int64_t needed_bytes, int64_t step);

// Throws UserError when step N is already there: nothing is rewritten.
void check_step_is_new(const std::filesystem::path& run_folder, int64_t step);

}  // namespace espalier::store
