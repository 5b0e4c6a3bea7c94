// numpy's legacy generator, RandomState(seed), as far as Megatron's sample order and its masking draw from it.
//
// numpy has frozen this stream, so the same seed gives the same order in every version. The draws of a shuffle depend
// on its length alone, not on the type or the values of what is shuffled: a Python list takes the same as an array, and
// what follows a shuffle can be drawn before the shuffle is done, by a copy of the generator that skips it.
#pragma once

#include <cstdint>
#include <span>

#include "base/progress.h"
#include "data/internal/numpy_words.h"

namespace espalier::data {

class NumpyRandom {
 public:
  explicit NumpyRandom(uint32_t seed) : words_(seed) {}

  // A whole number from 0 to `maximum`, both included. Nothing is drawn for maximum 0.
  uint64_t interval(uint64_t maximum);

  // random(): from 0 to below 1, in steps of 2^-53.
  double uniform();

  // randint(begin, end): from begin to end - 1. Nothing is drawn where only one value is possible.
  int64_t integer(int64_t begin, int64_t end) {
    return begin + static_cast<int64_t>(interval(static_cast<uint64_t>(end - 1 - begin)));
  }

  // choice() among as many values as `cumulated` has entries, which are the running sums of their probabilities divided
  // by the last one: the index of the value.
  size_t choice(std::span<const double> cumulated);

  // geometric(p) for p below 1/3: the number of trials up to the first success.
  int64_t geometric(double probability);

  // `progress`, if given, advances by one for each value. For int32_t, uint32_t and int64_t.
  template <class Value>
  void shuffle(std::span<Value> values, Progress* progress = nullptr);

  // Draws what a shuffle of so many values would: a tenth of its time.
  void skip_shuffle(size_t num_values);

 private:
  internal::NumpyWords words_;  // those of init_genrand(seed), as in numpy
};

}  // namespace espalier::data
