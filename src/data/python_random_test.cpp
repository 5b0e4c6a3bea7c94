// Against CPython 3.11's random.
#include "data/python_random.h"

#include <gtest/gtest.h>

namespace espalier::data {
namespace python_random_test {

using Indices = std::vector<size_t>;

TEST(PythonRandom, UniformNumbersAreCPythons) {
  for (const auto& [seed, first, second] : {std::tuple{uint64_t{0}, 0.8444218515250481, 0.7579544029403025},
                                            {1, 0.13436424411240122, 0.8474337369372327},
                                            {42, 0.6394267984578837, 0.025010755222666936},
                                            {1099511627783, 0.6137037779936511, 0.8149162973309487}}) {
    PythonRandom random(seed);
    EXPECT_EQ(random.uniform(), first);
    EXPECT_EQ(random.uniform(), second);
  }
}

TEST(PythonRandom, ShufflesAsCPythonDoes) {
  Indices values(20);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i;
  PythonRandom(42).shuffle(values);
  EXPECT_EQ(values, (Indices{19, 5, 14, 4, 9, 13, 15, 18, 6, 12, 17, 10, 1, 11, 2, 16, 7, 8, 0, 3}));
  Indices none, one = {7};
  PythonRandom(42).shuffle(none);
  PythonRandom(42).shuffle(one);
  EXPECT_EQ(one, Indices{7});
}

// One generator after another's draws; around the sizes at which CPython changes its method.
TEST(PythonRandom, SamplesAsCPythonDoes) {
  PythonRandom random(1234);
  EXPECT_EQ(random.sample(10, 3), (Indices{7, 1, 0}));
  EXPECT_EQ(random.sample(1000, 7), (Indices{92, 932, 965, 961, 826, 596, 35}));
  EXPECT_EQ(random.sample(21, 21), (Indices{2, 3, 11, 7, 0, 16, 12, 15, 5, 10, 9, 17, 18, 20, 13, 1, 6, 4, 8, 14, 19}));
  EXPECT_EQ(random.sample(84, 7), (Indices{8, 69, 59, 83, 76, 11, 65}));
  EXPECT_EQ(random.sample(86, 7), (Indices{74, 5, 34, 71, 8, 82, 38}));
  EXPECT_EQ(random.sample(85, 7), (Indices{61, 45, 34, 31, 25, 58, 67}));
  EXPECT_EQ(random.uniform(), 0.6654115469701555);
}

}  // namespace python_random_test
}  // namespace espalier::data
