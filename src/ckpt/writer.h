// Saves checkpoints behind training: a save stops training for one copy of the state in memory, no longer.
//
//   CheckpointWriter writer(save_folder, tokenizer_files);
//   writer.reserve(tensors);                  // optional, at start: the copy's memory is there before the first save
//   writer.save(manifest, tensors);           // copies, returns; a thread adds checksums, writes, fsyncs, renames
//   ...
//   writer.wait();                            // before the process ends
//
// One save at a time: a second waits for the first. An error of the thread is thrown by the next call (save, wait,
// check), naming path and reason; the unfinished folder is gone then and older checkpoints are untouched.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "store/manifest.h"
#include "store/step_writer.h"

namespace espalier::ckpt {

struct TensorToSave {
  std::string name;  // global name
  std::string file;  // store::weights_file(group), store::optimizer_file(group)
  at::Tensor value;  // contiguous, on the CPU
};

struct SaveReport {
  int64_t step = 0;
  int64_t bytes = 0;
  double stall_seconds = 0;  // how long training stood: waiting for an earlier save, and copying
  double write_seconds = 0;  // behind training
};

// Memory for the copy, kept from save to save. Huge pages where the system has them.
class HostBuffer {
 public:
  HostBuffer() = default;
  ~HostBuffer();
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  void grow(int64_t bytes);  // content is lost
  uint8_t* data() { return data_; }
  int64_t size() const { return size_; }

 private:
  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

class CheckpointWriter {
 public:
  // `extra_files` (the tokenizer) go into every checkpoint.
  CheckpointWriter(std::filesystem::path run_folder, std::vector<store::ExtraFile> extra_files);
  ~CheckpointWriter();  // waits; an error that nobody asked for is logged

  void reserve(const std::vector<TensorToSave>& tensors);

  // The caller fills in the manifest's model, state and config. Throws UserError at once, before copying, when the
  // disk has no room or the step exists.
  void save(const store::Manifest& manifest, const std::vector<TensorToSave>& tensors);
  // Ends the save in progress, if there is one.
  void wait();
  // Throws the error of a save that has failed in the meantime; does not wait.
  void check();
  // The last finished save; each is returned once.
  std::optional<SaveReport> take_report();

 private:
  struct Snapshot;
  void copy(const std::vector<TensorToSave>& tensors, Snapshot& snapshot);

  std::filesystem::path run_folder_;
  std::vector<store::ExtraFile> extra_files_;
  HostBuffer buffer_;
  std::future<SaveReport> pending_;
  std::optional<SaveReport> report_;
};

// Files as ExtraFiles in the folder `inside`: read_extra_files({"data/vocab.json"}, "tokenizer").
std::vector<store::ExtraFile> read_extra_files(const std::vector<std::filesystem::path>& files,
                                               const std::string& inside);

}  // namespace espalier::ckpt
