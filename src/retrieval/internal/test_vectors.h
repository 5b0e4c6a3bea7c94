// For the tests of this library: embeddings in memory, which count what is read of them, and a plain search of them.
#pragma once

#include <algorithm>
#include <numeric>
#include <random>

#include "retrieval/embedding_source.h"
#include "retrieval/internal/test_folder.h"
#include "retrieval/search.h"

namespace espalier::retrieval::test_vectors {

struct Vectors : EmbeddingSource {
  int64_t width = 0;
  std::vector<float> numbers;
  std::vector<int64_t> id_list;
  EmbeddingOrigin made_from{.encoder = "", .texts = "vectors"};
  int64_t rows_read = 0;
  int64_t fails_after = -1;  // rows; then an error, as if the process had been stopped

  int64_t dimension() const override { return width; }
  const std::vector<int64_t>& ids() const override { return id_list; }
  EmbeddingOrigin origin() const override { return made_from; }
  void read(int64_t first, int64_t count, float* rows) override {
    if (fails_after >= 0 && first + count > fails_after) throw UserError("stopped");
    rows_read += count;
    std::copy_n(numbers.begin() + first * width, count * width, rows);
  }
};

// Ids are 3, 5, 7, ... in no order.
inline Vectors random(int64_t num_rows, int64_t width, uint32_t seed) {
  Vectors vectors;
  vectors.width = width;
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  for (int64_t at = 0; at < num_rows * width; ++at) vectors.numbers.push_back(normal(generator));
  for (int64_t row = 0; row < num_rows; ++row) vectors.id_list.push_back(2 * row + 3);
  std::shuffle(vectors.id_list.begin(), vectors.id_list.end(), generator);
  return vectors;
}

// Every inner product in double, sorted: what an exact search must give.
inline std::vector<Hit> plain_search(const Vectors& rows, const float* query, int64_t count) {
  std::vector<Hit> all;
  for (size_t row = 0; row < rows.id_list.size(); ++row) {
    double sum = 0;
    for (int64_t at = 0; at < rows.width; ++at)
      sum += static_cast<double>(query[at]) *
             static_cast<double>(rows.numbers[row * static_cast<size_t>(rows.width) + static_cast<size_t>(at)]);
    all.push_back({rows.id_list[row], sum});
  }
  std::sort(all.begin(), all.end(),
            [](const Hit& a, const Hit& b) { return a.score > b.score || (a.score == b.score && a.id < b.id); });
  all.resize(std::min(all.size(), static_cast<size_t>(count)));
  return all;
}

}  // namespace espalier::retrieval::test_vectors
