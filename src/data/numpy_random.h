// numpy's legacy generator, RandomState(seed), as far as Megatron's sample order draws from it.
//
// numpy has frozen this stream, so the same seed gives the same order in every version. The draws of a shuffle depend
// on its length alone, not on the type or the values of what is shuffled.
#pragma once

#include <cstdint>
#include <random>
#include <span>

#include "base/progress.h"

namespace espalier::data {

class NumpyRandom {
 public:
  explicit NumpyRandom(uint32_t seed) : engine_(seed) {}

  // A whole number from 0 to `maximum`, both included. Nothing is drawn for maximum 0.
  uint64_t interval(uint64_t maximum);

  // `progress`, if given, advances by one for each value. For int32_t, uint32_t and int64_t.
  template <class Value>
  void shuffle(std::span<Value> values, Progress* progress = nullptr);

 private:
  std::mt19937 engine_;  // the words of init_genrand(seed), as in numpy
};

}  // namespace espalier::data
