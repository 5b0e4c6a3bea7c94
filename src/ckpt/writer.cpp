#include "ckpt/writer.h"

#include <ATen/Parallel.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "ckpt/dtype.h"

namespace espalier::ckpt {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Tensors begin at cache lines in the buffer.
constexpr int64_t kAlignment = 64;
// A share of a parallel copy: large enough to run at memory speed, small enough to divide evenly.
constexpr int64_t kCopyGrain = int64_t{4} << 20;
// Room for manifest, headers and a file system's bookkeeping, on top of the tensors.
constexpr int64_t kSlackBytes = int64_t{1} << 20;

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t buffer_bytes(const std::vector<TensorToSave>& tensors) {
  int64_t bytes = 0;
  for (const TensorToSave& tensor : tensors) bytes += aligned(static_cast<int64_t>(tensor.value.nbytes()));
  return bytes;
}

// The training threads come first: Linux keeps niceness per thread.
void step_back() { ::setpriority(PRIO_PROCESS, 0, 10); }

}  // namespace

HostBuffer::~HostBuffer() {
  if (data_ != nullptr) ::munmap(data_, static_cast<size_t>(size_));
}

void HostBuffer::grow(int64_t bytes) {
  if (bytes <= size_) return;
  if (data_ != nullptr) ::munmap(std::exchange(data_, nullptr), static_cast<size_t>(std::exchange(size_, 0)));
  void* memory =
      ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw UserError(concat("no memory for the copy of the state that a save takes: it needs ", format_count(bytes),
                           " bytes (", format_bytes(static_cast<double>(bytes)), ")"));
  ::madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a hint; without it the copy is slower, not wrong
  data_ = static_cast<uint8_t*>(memory);
  size_ = bytes;
  // First touch, in parallel: page faults would otherwise be paid in the first save.
  at::parallel_for(0, bytes, kCopyGrain, [&](int64_t begin, int64_t end) {
    std::memset(data_ + begin, 0, static_cast<size_t>(end - begin));
  });
}

struct CheckpointWriter::Snapshot {
  store::Manifest manifest;
  std::vector<store::TensorData> tensors;  // data lies in the buffer
};

CheckpointWriter::CheckpointWriter(std::filesystem::path run_folder, std::vector<store::ExtraFile> extra_files)
    : run_folder_(std::move(run_folder)), extra_files_(std::move(extra_files)) {}

CheckpointWriter::~CheckpointWriter() {
  try {
    wait();
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
}

void CheckpointWriter::reserve(const std::vector<TensorToSave>& tensors) {
  wait();
  buffer_.grow(buffer_bytes(tensors));
}

void CheckpointWriter::copy(const std::vector<TensorToSave>& tensors, Snapshot& snapshot) {
  struct Piece {
    uint8_t* to;
    const uint8_t* from;
    int64_t bytes;
  };
  std::vector<Piece> pieces;
  int64_t offset = 0;
  for (const TensorToSave& tensor : tensors) {
    const at::Tensor& value = tensor.value;
    ESPALIER_CHECK(value.is_contiguous() && value.device().is_cpu(), tensor.name);
    const auto bytes = static_cast<int64_t>(value.nbytes());
    uint8_t* to = buffer_.data() + offset;
    snapshot.tensors.push_back({.name = tensor.name,
                                .file = tensor.file,
                                .dtype = dtype_of(value.scalar_type()),
                                .shape = value.sizes().vec(),
                                .data = to});
    const auto* from = static_cast<const uint8_t*>(value.const_data_ptr());
    for (int64_t done = 0; done < bytes; done += kCopyGrain)
      pieces.push_back({to + done, from + done, std::min(kCopyGrain, bytes - done)});
    offset += aligned(bytes);
  }
  at::parallel_for(0, static_cast<int64_t>(pieces.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end; ++index) {
      const Piece& piece = pieces[static_cast<size_t>(index)];
      std::memcpy(piece.to, piece.from, static_cast<size_t>(piece.bytes));
    }
  });
}

void CheckpointWriter::save(const store::Manifest& manifest, const std::vector<TensorToSave>& tensors) {
  const Clock::time_point start = Clock::now();
  wait();
  std::filesystem::create_directories(run_folder_);
  store::check_step_is_new(run_folder_, manifest.state.step);
  const int64_t bytes = buffer_bytes(tensors);
  int64_t extra_bytes = kSlackBytes;
  for (const store::ExtraFile& extra : extra_files_) extra_bytes += static_cast<int64_t>(extra.content.size());
  store::check_free_space(run_folder_, bytes + extra_bytes, manifest.state.step);

  buffer_.grow(bytes);
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->manifest = manifest;
  copy(tensors, *snapshot);
  const double stall = seconds_since(start);
  pending_ = std::async(std::launch::async, [this, snapshot, stall] {
    step_back();
    const Clock::time_point write_start = Clock::now();
    const store::Manifest written = store::write_step(run_folder_, snapshot->manifest, snapshot->tensors, extra_files_);
    return SaveReport{.step = written.state.step,
                      .bytes = written.tensor_bytes(),
                      .stall_seconds = stall,
                      .write_seconds = seconds_since(write_start)};
  });
}

void CheckpointWriter::wait() {
  if (pending_.valid()) report_ = pending_.get();  // get() leaves it invalid, also when it throws
}

void CheckpointWriter::check() {
  if (pending_.valid() && pending_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) wait();
}

std::optional<SaveReport> CheckpointWriter::take_report() {
  check();
  return std::exchange(report_, std::nullopt);
}

std::vector<store::ExtraFile> read_extra_files(const std::vector<std::filesystem::path>& files,
                                               const std::string& inside) {
  std::vector<store::ExtraFile> extra;
  for (const std::filesystem::path& file : files)
    extra.push_back({.path = inside + "/" + file.filename().string(), .content = read_file(file)});
  return extra;
}

}  // namespace espalier::ckpt
