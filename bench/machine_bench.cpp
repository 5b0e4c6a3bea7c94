// What this machine can do at most, as one line of JSON: the figures that others are shares of.
//
//   machine_bench THREADS FOLDER [MIB]
//
// Multiply-adds in registers for each type that the processor has, without touching memory; reading and copying memory
// that no cache holds; writing a file in FOLDER until it is on the disk, and reading it past the page cache. Every
// figure is the best of five, as other programs only make it smaller.
#include <fcntl.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kRounds = 5;
constexpr int64_t kMultiplications = 20'000'000;  // of vectors, per thread and round; a fiftieth of it for tiles

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Seconds of the best of kRounds, in which every one of `num_threads` threads calls `work(thread)`.
double best_seconds(int num_threads, const std::function<void(int)>& work) {
  double best = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    const double start = seconds();
    std::vector<std::thread> threads;
    for (int thread = 0; thread < num_threads; ++thread) threads.emplace_back(work, thread);
    for (std::thread& thread : threads) thread.join();
    best = std::min(best, seconds() - start);
  }
  return best;
}

volatile float sink;

// COUNT independent sums hide the latency of the multiplications: four or five cycles at two a cycle. The empty
// statement keeps the compiler from joining or dropping them; REGISTER is its constraint for the vectors.
#define ESPALIER_PRAGMA(TEXT) _Pragma(#TEXT)
#define ESPALIER_SUMS(VECTOR, COUNT, REGISTER, ZERO, MULTIPLY)    \
  VECTOR sums[COUNT];                                             \
  for (VECTOR & sum : sums) sum = ZERO;                           \
  for (int64_t i = 0; i < kMultiplications / (COUNT); ++i) {      \
    ESPALIER_PRAGMA(GCC unroll COUNT) for (VECTOR & sum : sums) { \
      sum = MULTIPLY;                                             \
      asm volatile("" : REGISTER(sum));                           \
    }                                                             \
  }

#pragma GCC push_options
#pragma GCC target("avx2,fma")
void multiply_avx2() {
  const __m256 a = _mm256_set1_ps(1e-9F), b = _mm256_set1_ps(1e-9F);
  ESPALIER_SUMS(__m256, 12, "+x", _mm256_setzero_ps(), _mm256_fmadd_ps(a, b, sum))
  sink = _mm256_cvtss_f32(sums[0]);
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bf16")
void multiply_avx512() {
  const __m512 a = _mm512_set1_ps(1e-9F), b = _mm512_set1_ps(1e-9F);
  ESPALIER_SUMS(__m512, 24, "+v", _mm512_setzero_ps(), _mm512_fmadd_ps(a, b, sum))
  sink = _mm512_cvtss_f32(sums[0]);
}

void multiply_avx512bf16() {
  const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(1e-9F), _mm512_set1_ps(1e-9F)), b = a;
  ESPALIER_SUMS(__m512, 24, "+v", _mm512_setzero_ps(), _mm512_dpbf16_ps(sum, a, b))
  sink = _mm512_cvtss_f32(sums[0]);
}
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16")
void multiply_amx() {
  struct alignas(64) {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t columns[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } shape;
  _tile_loadconfig(&shape);
  alignas(64) uint8_t zeros[1024] = {};
  _tile_loadd(4, zeros, 64);
  _tile_loadd(5, zeros, 64);
  _tile_loadd(6, zeros, 64);
  _tile_loadd(7, zeros, 64);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t i = 0; i < kMultiplications / 50 / 4; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, zeros, 64);
  sink = static_cast<float>(zeros[0]);
  _tile_release();
}
#pragma GCC pop_options

bool allows_amx() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(2)
  return __builtin_cpu_supports("amx-bf16") && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

double gflops(int num_threads, void (*multiply)(), double operations_of_one, int64_t count) {
  const double time = best_seconds(num_threads, [multiply](int) { multiply(); });
  return static_cast<double>(num_threads) * static_cast<double>(count) * operations_of_one / time / 1e9;
}

struct Memory {
  double read_gb_per_s = 0, copy_gb_per_s = 0;
};

// A copy counts its bytes twice, read and written.
Memory measure_memory(int num_threads, size_t bytes) {
  std::vector<char> from(bytes, 1), to(bytes, 2);
  const size_t part = bytes / static_cast<size_t>(num_threads) / 64 * 64;
  const double read = best_seconds(num_threads, [&](int thread) {
    const auto* const at = reinterpret_cast<const uint64_t*>(from.data() + part * static_cast<size_t>(thread));
    uint64_t sums[8] = {};
    for (size_t i = 0; i < part / 8; i += 8)
      for (size_t lane = 0; lane < 8; ++lane) sums[lane] ^= at[i + lane];
    sink = static_cast<float>(sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7]);
  });
  const double copy = best_seconds(num_threads, [&](int thread) {
    const size_t at = part * static_cast<size_t>(thread);
    std::memcpy(to.data() + at, from.data() + at, part);
  });
  const double gigabytes = static_cast<double>(part) * num_threads / 1e9;
  return {gigabytes / read, 2 * gigabytes / copy};
}

[[noreturn]] void fail(const std::string& what) {
  std::perror(what.c_str());
  std::exit(1);
}

struct Disk {
  double write_gb_per_s = 0, read_gb_per_s = 0;
};

Disk measure_disk(const std::string& folder, size_t bytes) {
  const std::string path = folder + "/machine_bench.data";
  constexpr size_t kPiece = size_t{8} << 20;
  char* const piece = static_cast<char*>(std::aligned_alloc(4096, kPiece));
  for (size_t i = 0; i < kPiece; ++i) piece[i] = static_cast<char>(i * 2654435761U >> 13);
  Disk best;
  const auto rate = [bytes](double start) { return static_cast<double>(bytes) / 1e9 / (seconds() - start); };
  for (int round = 0; round < 3; ++round) {
    double start = seconds();
    const int file = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (file < 0) fail(path);
    for (size_t done = 0; done < bytes; done += kPiece)
      if (write(file, piece, kPiece) != static_cast<ssize_t>(kPiece)) fail(path);
    if (fdatasync(file) != 0) fail(path);
    best.write_gb_per_s = std::max(best.write_gb_per_s, rate(start));
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    close(file);
    int reader = open(path.c_str(), O_RDONLY | O_DIRECT);
    if (reader < 0) reader = open(path.c_str(), O_RDONLY);  // a file system in memory
    start = seconds();
    while (read(reader, piece, kPiece) > 0) {
    }
    best.read_gb_per_s = std::max(best.read_gb_per_s, rate(start));
    close(reader);
  }
  unlink(path.c_str());
  std::free(piece);
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: machine_bench THREADS FOLDER [MIB]\n"), 2;
  const int num_threads = std::max(1, std::atoi(argv[1]));
  const size_t mib = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 512;
  std::string peaks;
  const auto add = [&](const char* name, double value) {
    peaks += (peaks.empty() ? "" : ", ") + ("\"" + std::string(name) + "\": " + std::to_string(value));
  };
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    add("fp32 avx2", gflops(num_threads, multiply_avx2, 2 * 8, kMultiplications));
  if (__builtin_cpu_supports("avx512f"))
    add("fp32 avx512", gflops(num_threads, multiply_avx512, 2 * 16, kMultiplications));
  if (__builtin_cpu_supports("avx512bf16"))
    add("bf16 avx512bf16", gflops(num_threads, multiply_avx512bf16, 2 * 32, kMultiplications));
  if (allows_amx()) add("bf16 amx", gflops(num_threads, multiply_amx, 2 * 16 * 16 * 32, kMultiplications / 50));
  const Memory memory = measure_memory(num_threads, mib << 20);
  const Disk disk = measure_disk(argv[2], mib << 20);
  std::printf(
      "{\"threads\": %d, \"register_gflops\": {%s}, \"read_gb_per_s\": %.2f, \"copy_gb_per_s\": %.2f, "
      "\"disk_write_gb_per_s\": %.3f, \"disk_read_gb_per_s\": %.3f}\n",
      num_threads, peaks.c_str(), memory.read_gb_per_s, memory.copy_gb_per_s, disk.write_gb_per_s, disk.read_gb_per_s);
  return 0;
}
