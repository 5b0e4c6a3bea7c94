#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/thread_pool.h"
#include "data/python_random.h"
#include "eval/metric.h"

namespace espalier::eval {
namespace {

constexpr int64_t kLargestChunk = 1000;

std::vector<double> resample_chunk(uint64_t chunk, int64_t size, size_t num_items,
                                   const std::function<double(const std::vector<uint32_t>&)>& value) {
  data::PythonRandom random(chunk);
  std::vector<uint32_t> drawn(num_items);
  std::vector<double> values;
  for (int64_t i = 0; i < size; ++i) {
    for (uint32_t& index : drawn) index = static_cast<uint32_t>(random.choice(num_items));
    values.push_back(value(drawn));
  }
  return values;
}

}  // namespace

std::optional<double> bootstrap_error(size_t num_items, int64_t bootstrap_iters,
                                      const std::function<double(const std::vector<uint32_t>&)>& value_of_resample) {
  ESPALIER_CHECK(num_items < UINT32_MAX, num_items);
  if (num_items < 2 || bootstrap_iters < 2) return std::nullopt;
  const int64_t chunk_size = std::min(kLargestChunk, bootstrap_iters), num_chunks = bootstrap_iters / chunk_size;
  std::vector<std::future<std::vector<double>>> chunks;
  ThreadPool pool(static_cast<int>(std::min<int64_t>(num_usable_cores(), num_chunks)));
  for (int64_t chunk = 0; chunk < num_chunks; ++chunk)
    chunks.push_back(pool.submit(
        [&, chunk] { return resample_chunk(static_cast<uint64_t>(chunk), chunk_size, num_items, value_of_resample); }));
  std::vector<double> values;
  for (auto& chunk : chunks)
    for (const double value : chunk.get()) values.push_back(value);
  double sum = 0, squares = 0;
  for (const double value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

}  // namespace espalier::eval
