// How fast Megatron's order of the samples is built and kept: order_bench SIZES SEQUENCE_LENGTH EPOCHS FOLDER
//
// SIZES holds the tokens of each document as int32 values, one after the other. Prints one JSON object: samples, and
// the seconds from the sizes to the three arrays in FOLDER, as order_peer.py measures upstream's.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "data/sample_index_cache.h"

namespace {

using namespace espalier;

std::vector<int32_t> read_sizes(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UserError(concat(path, " cannot be read"));
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<int32_t> sizes(bytes.size() / sizeof(int32_t));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(sizes.data()));
  return sizes;
}

void run(const char* path, int64_t sequence_length, double epochs, const char* folder) {
  const std::vector<int32_t> sizes = read_sizes(path);
  const int64_t tokens = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const data::SampleRequest request{
      .documents = {0, static_cast<int64_t>(sizes.size())},
      .sequence_length = sequence_length,
      .num_samples = static_cast<int64_t>(epochs * static_cast<double>(tokens) / static_cast<double>(sequence_length)),
      .seed = 1234,
      .name = "order_bench"};
  const auto start = std::chrono::steady_clock::now();
  const data::SampleIndex index =
      data::SampleIndexCache(folder).load_or_build(std::span<const int32_t>(sizes), request);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("{\"samples\": %ld, \"seconds\": %.4f}\n", static_cast<long>(index.size()), seconds);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return std::fprintf(stderr, "usage: order_bench SIZES SEQUENCE_LENGTH EPOCHS FOLDER\n"), 2;
  try {
    run(argv[1], std::atol(argv[2]), std::atof(argv[3]), argv[4]);
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "order_bench: %s\n", error.what()), 1;
  }
  return 0;
}
