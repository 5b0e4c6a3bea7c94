// Writes one step folder so that a crash at any moment leaves the older checkpoints whole and this one either complete
// or plainly unfinished, by one process or by several together.
//
//   begin_step(run, step);                          // rank 0; then the others are told that they may begin
//   write_step(run, {manifest, tensors, blocks, extra_files}, {rank, count});   // all, each with blocks of its own
//
// Everything goes to `step_N.partial/`: safetensors files block by block with their checksums, other files, the
// manifest last; each is fsynced and read back from the disk, then the folder; the rename to `step_N` makes it a
// checkpoint; the run folder is fsynced. Each page of a file is written by one process. Nothing that exists is written
// to. A failure of one process ends the save in all of them: the partial folder is removed and each gets a UserError
// with the reason.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "store/manifest.h"

namespace espalier::store {

// A tensor of the checkpoint, as all processes together hold it.
struct TensorFacts {
  std::string name;
  std::string file;  // weights_file(group) or optimizer_file(group)
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;  // global

  int64_t num_elements() const;
  int64_t num_bytes() const { return num_elements() * size_bytes(dtype); }
};

// Puts bytes [offset, offset + bytes) of a tensor, by number in the list of tensors, into `destination`. Called for one
// range of a tensor after the other, each within a block, and by several threads at once for tensors of different
// files.
using MakeBytes = std::function<void(size_t tensor, int64_t offset, int64_t bytes, void* destination)>;

// A range of a tensor's bytes that this process writes, at most kBlockBytes.
struct OwnBlock {
  size_t tensor = 0;  // number in the list of tensors
  int64_t offset = 0, bytes = 0;
};

// A small file that travels with the checkpoint, whole: {"tokenizer/vocab.json", "{...}"}.
struct ExtraFile {
  std::string path;  // within the step folder
  std::string content;
};

// This process among those that write one step together. Rank 0 writes headers, extra files and the manifest too.
struct Writers {
  int64_t rank = 0, count = 1;
  std::chrono::milliseconds patience = std::chrono::minutes(30);  // with a rank from which nothing comes
  const std::atomic<bool>* leaving = nullptr;                     // once true, another rank is waited for briefly
};

struct StepContent {
  Manifest manifest;                   // model, state and config are the caller's; the rest is filled in
  std::vector<TensorFacts> tensors;    // the same on all ranks
  std::vector<OwnBlock> blocks;        // all ranks together: every byte of every tensor once
  std::vector<ExtraFile> extra_files;  // used on rank 0
  MakeBytes make = {};                 // what is in the blocks: each byte is asked for once, when its turn comes
  bool read_back = true;               // each process reads what it wrote, from the disk, before it counts as saved
};

// Rank 0, before any rank writes. The folder of step N must not exist yet; a partial one of an earlier attempt is
// removed. Then there must be room for `needed_bytes` (check_free_space).
void begin_step(const std::filesystem::path& run_folder, int64_t step, int64_t needed_bytes = 0);

// Returns when the checkpoint is complete, on every rank.
void write_step(const std::filesystem::path& run_folder, const StepContent& content, const Writers& writers);

// A whole tensor in memory, row-major. The data is not owned.
struct TensorData {
  std::string name;
  std::string file;
  DType dtype = DType::kFloat32;
  std::vector<int64_t> shape;
  const void* data = nullptr;
};

// The whole of it by one process.
void write_step(const std::filesystem::path& run_folder, const Manifest& manifest,
                const std::vector<TensorData>& tensors, const std::vector<ExtraFile>& extra_files);

// The same for tensors that are made while they are written: a few MiB of them are in memory at a time.
void write_step(const std::filesystem::path& run_folder, const Manifest& manifest,
                const std::vector<TensorFacts>& tensors, const MakeBytes& make,
                const std::vector<ExtraFile>& extra_files);

// Throws UserError (kCannotCreate) with both figures when the file system of `run_folder` has less than `needed_bytes`
// free for this user.
void check_free_space(const std::filesystem::path& run_folder, int64_t needed_bytes, int64_t step);

// Throws UserError when step N is already there: nothing is rewritten.
void check_step_is_new(const std::filesystem::path& run_folder, int64_t step);

// Where step N is written before it is complete.
std::filesystem::path partial_folder(const std::filesystem::path& run_folder, int64_t step);

}  // namespace espalier::store
