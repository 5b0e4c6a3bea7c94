// Saves checkpoints in the background. By one process, or by all ranks of a group together, each with the parts that it
// holds.
//
//   CheckpointWriter writer(save_folder, tokenizer_files, grid.world);
//   writer.reserve(tensors);                  // optional, at start: plan and memory are ready before the first save
//   writer.save(manifest, tensors);           // returns; a thread adds checksums, writes, fsyncs, renames
//   ...
//   writer.before_change();                   // then the tensors may change
//   ...
//   writer.wait();                            // before the process ends
//
// What a rank holds on the CPU and writes itself is read where it is, while training goes on that does not change it.
// When it is about to, what is not yet written is copied first (ckpt/block_source.h): a save stops training for one
// copy of the state in memory at most, and takes memory for what was left. Other tensors are copied within save().
//
// Together the ranks hold every element of every tensor at least once; each is written once, by a rank that the plan
// names (plan/reshape.h), in the same files whatever the layout. Tensors that have to change hands do so within save(),
// on the calling thread; in the background the ranks meet in the checkpoint's folder only.
//
// One save at a time: a second waits for the first. An error of the thread, or of another rank's, is thrown by the next
// call (save, wait, check), naming path, rank and reason; the unfinished folder is gone then and older checkpoints are
// untouched.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/block_source.h"
#include "ckpt/host_buffer.h"
#include "ckpt/local_tensor.h"
#include "ckpt/save_plan.h"
#include "dist/group.h"
#include "store/manifest.h"
#include "store/step_writer.h"

namespace espalier::ckpt {

struct SaveReport {
  int64_t step = 0;
  int64_t bytes = 0;          // of the whole checkpoint
  int64_t written_bytes = 0;  // by this rank
  int64_t given_bytes = 0;    // by this rank to others, which wrote them
  double stall_seconds = 0;   // how long training paused: waiting for an earlier save, exchanging and copying
  double write_seconds = 0;   // in the background
};

class CheckpointWriter {
 public:
  // `extra_files` (the tokenizer) go into every checkpoint. `group`: all ranks that hold parts of the state, on the
  // CPU. `block_bytes`: a tensor is stored in blocks of at most this many.
  CheckpointWriter(std::filesystem::path run_folder, std::vector<store::ExtraFile> extra_files,
                   dist::Group group = dist::Group(), int64_t block_bytes = store::kBlockBytes);
  // Waits, for other ranks only briefly: by now one of them may be gone. An error that nobody asked for is logged.
  ~CheckpointWriter();

  // Whether saves from here on are read back from the disk before they count (store/step_writer.h): they are unless
  // told otherwise. The same on all ranks.
  void set_read_back(bool read_back) { read_back_ = read_back; }

  // Collective.
  void reserve(const std::vector<TensorToSave>& tensors);

  // The caller fills in the manifest's model, state and config (rank 0's counts). Throws UserError at once, before
  // copying, when the disk has no room or the step exists. Collective; every error that it throws is thrown on all
  // ranks. From here on nothing may change the tensors' values without before_change().
  void save(const store::Manifest& manifest, std::vector<TensorToSave> tensors);
  // The tensors of the last save are about to change: returns when it needs them no more. Of each rank by itself, by
  // the thread that saves; costs nothing where nothing is left to be written.
  void before_change();
  // Ends the save in progress, if there is one.
  void wait();
  // Throws the error of a save that has failed in the meantime; does not wait.
  void check();
  // The last finished save; each is returned once.
  std::optional<SaveReport> take_report();

 private:
  void plan_for(const std::vector<TensorToSave>& tensors);
  void begin(int64_t step);
  void write_behind(const store::Manifest& manifest, double stall_seconds);

  std::filesystem::path run_folder_;
  std::vector<store::ExtraFile> extra_files_;
  dist::Group group_;
  int64_t block_bytes_;
  bool read_back_ = true;
  SavePlan plan_;
  HostBuffer buffer_;
  std::shared_ptr<BlockSource> source_;  // of the save in progress
  double change_seconds_ = 0;            // for which before_change() has stopped training since that began
  std::atomic<bool> leaving_ = false;
  std::future<SaveReport> pending_;
  std::optional<SaveReport> report_;
};

}  // namespace espalier::ckpt
