// CPython's random.Random(seed), as far as evaluations and retrieval draw from it: the order of documents, the
// bootstrap, few-shot examples, the queries of blocks. The streams are those of CPython 3.2 to 3.13.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace espalier::data {

class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);

  double uniform();              // random(): from 0 to below 1
  uint64_t below(uint64_t end);  // _randbelow(end): from 0 to end - 1; end from 1 to 2^32
  size_t choice(size_t size) {   // the index of one draw of choices(): biased a little, as there
    return static_cast<size_t>(uniform() * static_cast<double>(size));
  }

  template <class Value>
  void shuffle(std::vector<Value>& values) {
    for (size_t last = values.size(); last-- > 1;) std::swap(values[last], values[below(last + 1)]);
  }

  // sample(range(size), count): the indices in the order drawn. `count` is at most `size`.
  std::vector<size_t> sample(size_t size, size_t count);

 private:
  std::mt19937 engine_;
};

}  // namespace espalier::data
