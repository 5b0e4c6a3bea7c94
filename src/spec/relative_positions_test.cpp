#include "spec/relative_positions.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "base/error.h"

namespace espalier::spec::relative_positions_test {
namespace {

// Lines that tests/oracle/relative_buckets_oracle.py wrote.
int64_t expect_buckets_of(const std::string& path) {
  std::ifstream file(path);
  int64_t num_lines = 0;
  for (std::string line; std::getline(file, line); ++num_lines) {
    std::istringstream words(line);
    std::string direction, run;
    RelativePositions positions;
    int64_t length = 0;
    words >> direction >> positions.num_buckets >> positions.max_distance >> length;
    positions.bidirectional = direction == "bidirectional";
    std::vector<int64_t> wanted;
    int64_t bucket = 0;
    const auto add_until = [&](int64_t distance) {
      while (static_cast<int64_t>(wanted.size()) < distance + length - 1) wanted.push_back(bucket);
    };
    while (words >> run) {
      const size_t colon = run.find(':');
      add_until(std::stoll(run.substr(0, colon)));
      bucket = std::stoll(run.substr(colon + 1));
    }
    add_until(length);
    EXPECT_EQ(relative_buckets(positions, length), wanted) << line;
  }
  return num_lines;
}

TEST(RelativePositions, BucketsAreTransformersAtEveryDistance) {
  EXPECT_EQ(expect_buckets_of("tests/data/transformers/relative_buckets.txt"), 14);
  const char* const fresh = std::getenv("ESPALIER_FRESH_ORACLES");
  if (fresh == nullptr) return;
  EXPECT_GT(expect_buckets_of(std::string(fresh) + "/relative_buckets.txt"), 0);
}

// By hand, from the definition.
TEST(RelativePositions, BucketsOfFewDistances) {
  const RelativePositions both{.num_buckets = 8, .max_distance = 8};
  EXPECT_EQ(relative_buckets(both, 5), (std::vector<int64_t>{3, 2, 2, 1, 0, 5, 6, 6, 7}));
  const RelativePositions causal{.num_buckets = 4, .max_distance = 8, .bidirectional = false};
  EXPECT_EQ(relative_buckets(causal, 5), (std::vector<int64_t>{3, 2, 2, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(relative_buckets({}, 1), std::vector<int64_t>{0});
}

TEST(RelativePositions, TooFewBucketsAreABug) {
  EXPECT_NO_THROW(relative_buckets({.num_buckets = 4, .max_distance = 2}, 7));
  EXPECT_THROW(relative_buckets({.num_buckets = 3, .max_distance = 8}, 7), InternalError);
  EXPECT_THROW(relative_buckets({.num_buckets = 4, .max_distance = 1}, 7), InternalError);
  EXPECT_NO_THROW(relative_buckets({.num_buckets = 2, .max_distance = 2, .bidirectional = false}, 7));
  EXPECT_THROW(relative_buckets({.num_buckets = 1, .max_distance = 8, .bidirectional = false}, 7), InternalError);
  EXPECT_THROW(relative_buckets({.num_buckets = 32, .max_distance = 8}, 7), InternalError);
  EXPECT_THROW(relative_buckets({}, 0), InternalError);
}

}  // namespace
}  // namespace espalier::spec::relative_positions_test
