// What a save costs training, and how fast it reaches the disk, compared with what the machine can do; then loading.
//
//   OMP_NUM_THREADS=2 checkpoint_bench FOLDER [MiB] [repeats]
//
// Each save is made twice, with and without reading it back. Peers in the same run, alternating: the copy against a
// plain parallel memcpy between buffers already touched; the save against a write of as many bytes with O_DIRECT and
// fsync (no checksum, no copy); the load against reading as many bytes with O_DIRECT. The page cache of the checkpoint
// is dropped before it is loaded.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>

#include "base/error.h"
#include "ckpt/loader.h"
#include "ckpt/writer.h"
#include "store/run_folder.h"

namespace {

namespace fs = std::filesystem;
using namespace espalier;

constexpr int64_t kPiece = int64_t{4} << 20;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void check(bool good, const char* what) {
  if (!good) throw UserError(concat(what, ": ", std::strerror(errno)));
}

void memcpy_all(uint8_t* to, const uint8_t* from, int64_t bytes) {
  at::parallel_for(0, bytes / kPiece, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) std::memcpy(to + piece * kPiece, from + piece * kPiece, kPiece);
  });
}

void raw_write(const fs::path& path, const uint8_t* data, int64_t bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0644);
  check(file >= 0, "open");
  for (int64_t at = 0; at < bytes; at += kPiece) check(::pwrite(file, data + at, kPiece, at) == kPiece, "write");
  check(::fsync(file) == 0, "fsync");
  ::close(file);
}

void raw_read(const fs::path& path, uint8_t* data, int64_t bytes) {
  const int file = ::open(path.c_str(), O_RDONLY | O_DIRECT);
  check(file >= 0, "open");
  for (int64_t at = 0; at < bytes; at += kPiece) check(::pread(file, data + at, kPiece, at) == kPiece, "read");
  ::close(file);
}

void drop_cache(const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const int file = ::open(entry.path().c_str(), O_RDONLY);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

// CPU time of the whole process: what is left to training on a machine that is busy, and what other programs do not
// change.
double cpu_seconds() {
  rusage usage;
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Best {
  double seconds = 1e30;
  void add(double value) { seconds = std::min(seconds, value); }
};

void run(const fs::path& folder, int64_t mebibytes, int repeats) {
  const int64_t bytes = mebibytes << 20, per_tensor = 16 << 20;
  std::vector<ckpt::TensorToSave> tensors;
  std::vector<ckpt::TensorRequest> requests;
  for (int64_t index = 0; index < bytes / per_tensor; ++index) {
    const std::string group = std::to_string(10000 + index / 4);
    tensors.push_back({concat("t", index), store::optimizer_file(group), at::randn({per_tensor / 4})});
    requests.push_back({concat("t", index), at::zeros({per_tensor / 4})});
  }
  ckpt::HostBuffer from, to;
  from.grow(bytes), to.grow(bytes);
  ckpt::CheckpointWriter writer(folder, {});
  writer.reserve(tensors);
  Best copy, stall, raw_out, save, plain_save, raw_in, load, save_cpu, plain_cpu, load_cpu;
  for (int repeat = 1; repeat <= repeats; ++repeat) {
    copy.add(seconds_of([&] { memcpy_all(to.data(), from.data(), bytes); }));
    store::Manifest manifest;
    manifest.state.step = repeat;
    double cpu = cpu_seconds();
    writer.set_read_back(false);
    writer.save(manifest, tensors);
    writer.wait();
    plain_cpu.add(cpu_seconds() - cpu);
    plain_save.add(writer.take_report()->write_seconds);
    fs::remove_all(folder / store::step_folder_name(repeat));
    cpu = cpu_seconds();
    writer.set_read_back(true);
    writer.save(manifest, tensors);
    writer.wait();
    const ckpt::SaveReport report = *writer.take_report();
    save_cpu.add(cpu_seconds() - cpu);
    stall.add(report.stall_seconds), save.add(report.write_seconds);
    raw_out.add(seconds_of([&] { raw_write(folder / "raw", from.data(), bytes); }));
    const fs::path step = folder / store::step_folder_name(repeat);
    drop_cache(step);
    cpu = cpu_seconds();
    load.add(seconds_of([&] { ckpt::LoadedCheckpoint(step).load(requests, ckpt::LoadedCheckpoint::Part::kAll); }));
    load_cpu.add(cpu_seconds() - cpu);
    raw_in.add(seconds_of([&] { raw_read(folder / "raw", to.data(), bytes); }));
    fs::remove_all(step);
  }
  fs::remove(folder / "raw");
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  const auto line = [&](const char* what, const Best& ours, const char* peer, const Best& theirs) {
    std::printf("%-22s %8.3f s %7.2f GB/s   %-18s %8.3f s %7.2f GB/s   ratio %.2f\n", what, ours.seconds,
                gigabytes / ours.seconds, peer, theirs.seconds, gigabytes / theirs.seconds,
                theirs.seconds / ours.seconds);
  };
  std::printf("state %ld MiB, %d threads, best of %d\n", static_cast<long>(mebibytes), at::get_num_threads(), repeats);
  line("training stands", stall, "memcpy", copy);
  line("save in the background", save, "O_DIRECT write", raw_out);
  line("  without reading back", plain_save, "O_DIRECT write", raw_out);
  line("load, cold", load, "O_DIRECT read", raw_in);
  std::printf("CPU seconds per GB: save %.2f (copy included; %.2f without reading back), load %.2f\n",
              save_cpu.seconds / gigabytes, plain_cpu.seconds / gigabytes, load_cpu.seconds / gigabytes);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: checkpoint_bench FOLDER [MiB] [repeats]\n"), 2;
  fs::create_directories(argv[1]);
  run(argv[1], argc > 2 ? std::atol(argv[2]) : 1024, argc > 3 ? std::atoi(argv[3]) : 5);
  return 0;
}
