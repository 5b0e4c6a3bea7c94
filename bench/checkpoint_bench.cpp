// What a save costs training, and how fast it reaches the disk, compared with what the machine can do; then loading, by
// one process and by two between which every tensor is divided.
//
//   checkpoint_bench FOLDER MIB ROUNDS THREADS     prints one JSON object: GB/s of each round
//
// Each save is made twice, with and without reading it back; with it, the tensors are about to change at once, so that
// nearly all of them is copied ("stall"). Peers in the same round: the copy against a plain parallel
// memcpy between buffers already touched; the save against a write of as many bytes with O_DIRECT and fsync (no
// checksum, no copy); the load against reading as many bytes with O_DIRECT. The page cache of the checkpoint is dropped
// before each load. "divided": two processes load halves of the columns of every tensor, so that no half lies together
// in the file; "whole": one process loads all of it.
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
#include <map>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "ckpt/loader.h"
#include "ckpt/writer.h"
#include "dist/local_ranks.h"
#include "store/run_folder.h"

namespace {

namespace fs = std::filesystem;
using namespace espalier;

constexpr int64_t kPiece = int64_t{4} << 20, kRows = 1024, kColumns = 4096;  // of a tensor of 16 MiB

struct Task {
  fs::path folder;
  int64_t bytes = 0;
  int rounds = 1, num_threads = 1;
  int64_t num_tensors() const { return bytes / (kRows * kColumns * 4); }
};

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

// Of each round, by name, as the members of a JSON object.
using Figures = std::map<std::string, std::vector<double>>;

std::string members(const Figures& figures) {
  std::string text;
  for (const auto& [name, values] : figures) {
    text += concat(text.empty() ? "" : ", ", "\"", name, "\": [");
    for (size_t i = 0; i < values.size(); ++i) text += format_printf("%s%.4f", i == 0 ? "" : ", ", values[i]);
    text += "]";
  }
  return text;
}

std::string tensor_name(int64_t index) { return concat("t", index); }

// All of every tensor, or its left or right half of the columns.
std::vector<ckpt::TensorRequest> requests_for(const Task& task, int64_t part, int64_t num_parts) {
  const int64_t columns = kColumns / num_parts;
  ckpt::TensorPart held{.global_shape = {kRows, kColumns}, .extents = {}};
  for (int64_t row = 0; row < kRows; ++row)
    held.extents.push_back(
        {.global_begin = row * kColumns + part * columns, .local_begin = row * columns, .count = columns});
  std::vector<ckpt::TensorRequest> requests;
  for (int64_t index = 0; index < task.num_tensors(); ++index) {
    requests.push_back({.name = tensor_name(index), .destination = at::zeros({kRows, columns})});
    if (num_parts > 1) requests.back().part = held;
  }
  return requests;
}

// As training opens it.
ckpt::LoadedCheckpoint opened(const std::filesystem::path& step) {
  ckpt::LoadedCheckpoint checkpoint(step);
  checkpoint.use_cache(store::PageCache::kAsItIs);
  return checkpoint;
}

// Saves, and loads by one process; the last checkpoint stays.
std::string one_process(const Task& task) {
  std::vector<ckpt::TensorToSave> tensors;
  for (int64_t index = 0; index < task.num_tensors(); ++index)
    tensors.push_back({.name = tensor_name(index),
                       .file = store::optimizer_file(std::to_string(10000 + index / 4)),
                       .value = at::randn({kRows, kColumns})});
  const std::vector<ckpt::TensorRequest> requests = requests_for(task, 0, 1);
  ckpt::HostBuffer from, to;
  from.grow(task.bytes), to.grow(task.bytes);
  ckpt::CheckpointWriter writer(task.folder, {});
  writer.reserve(tensors);
  const double gigabytes = static_cast<double>(task.bytes) / 1e9;
  Figures found;
  const auto add = [&](const char* what, double seconds) { found[what].push_back(gigabytes / seconds); };
  for (int round = 1; round <= task.rounds; ++round) {
    add("memcpy", seconds_of([&] { memcpy_all(to.data(), from.data(), task.bytes); }));
    store::Manifest manifest;
    manifest.state.step = round;
    const fs::path step = task.folder / store::step_folder_name(round);
    writer.set_read_back(false);
    writer.save(manifest, tensors);
    writer.wait();
    add("save_unread", writer.take_report()->write_seconds);
    fs::remove_all(step);
    double cpu = cpu_seconds();
    writer.set_read_back(true);
    writer.save(manifest, tensors);
    writer.before_change();
    writer.wait();
    const ckpt::SaveReport report = *writer.take_report();
    found["save_cpu_s_per_gb"].push_back((cpu_seconds() - cpu) / gigabytes);
    add("stall", report.stall_seconds), add("save", report.write_seconds);
    add("raw_write", seconds_of([&] { raw_write(task.folder / "raw", from.data(), task.bytes); }));
    drop_cache(step);
    cpu = cpu_seconds();
    add("load", seconds_of([&] { opened(step).load(requests, ckpt::LoadedCheckpoint::Part::kAll); }));
    found["load_cpu_s_per_gb"].push_back((cpu_seconds() - cpu) / gigabytes);
    add("raw_read", seconds_of([&] { raw_read(task.folder / "raw", to.data(), task.bytes); }));
    if (round < task.rounds) fs::remove_all(step);
  }
  fs::remove(task.folder / "raw");
  return members(found);
}

// Loads of the checkpoint that one_process left, by one process and divided between two, in turns.
std::string two_processes(const Task& task, const dist::Group& world) {
  const fs::path step = task.folder / store::step_folder_name(task.rounds);
  const std::vector<ckpt::TensorRequest> whole = requests_for(task, 0, 1), half = requests_for(task, world.rank(), 2);
  const double gigabytes = static_cast<double>(task.bytes) / 1e9;
  Figures found;
  const auto measure = [&](const char* what, const std::function<void()>& load) {
    if (world.rank() == 0) drop_cache(step);
    world.barrier();
    found[what].push_back(gigabytes / seconds_of([&] {
                            load();
                            world.barrier();
                          }));
  };
  for (int round = 0; round < task.rounds; ++round) {
    measure("load_whole", [&] {
      if (world.rank() == 0) opened(step).load(whole, ckpt::LoadedCheckpoint::Part::kAll);
    });
    measure("load_divided", [&] { opened(step).load_together(half, ckpt::LoadedCheckpoint::Part::kAll, world); });
  }
  return members(found);
}

void run(const Task& task) {
  fs::create_directories(task.folder);
  set_log_level(LogLevel::kWarning);
  const auto ranks = [](const spec::GridShape& shape, int num_threads, const dist::RankFunction& function) {
    return dist::run_ranks(shape, function, {.timeout_seconds = 1800, .num_threads = num_threads})[0];
  };
  const std::string one = ranks({}, task.num_threads, [&](const dist::Grid&) { return one_process(task); });
  const std::string two = ranks({.tensor = 2}, std::max(1, task.num_threads / 2),
                                [&](const dist::Grid& grid) { return two_processes(task, grid.world); });
  fs::remove_all(task.folder / store::step_folder_name(task.rounds));
  std::printf("{\"mib\": %ld, \"threads\": %d, \"rounds\": {%s, %s}}\n", static_cast<long>(task.bytes >> 20),
              task.num_threads, one.c_str(), two.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return std::fprintf(stderr, "usage: checkpoint_bench FOLDER MIB ROUNDS THREADS\n"), 2;
  try {
    run({.folder = argv[1],
         .bytes = std::atol(argv[2]) << 20,
         .rounds = std::atoi(argv[3]),
         .num_threads = std::atoi(argv[4])});
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "checkpoint_bench: %s\n", error.what()), 1;
  }
  return 0;
}
