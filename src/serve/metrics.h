// What a server has done, as Prometheus reads it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "infer/engine/engine.h"

namespace espalier::serve {

// Counts of times below each bound.
class Histogram {
 public:
  void add(double seconds);
  void print(const std::string& name, const std::string& help, std::string& text) const;

 private:
  static constexpr std::array<double, 14> kBounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                     1,     2.5,  5,     10,   30,  60,   300};
  std::array<int64_t, kBounds.size() + 1> counts_ = {};
  double sum_ = 0;
};

// Any thread.
class Metrics {
 public:
  // A reply was given.
  void count(const std::string& route, int status);
  void add_seconds(double seconds);
  void add_seconds_to_first_token(double seconds);
  void add_gone() {
    const std::lock_guard lock(mutex_);
    ++num_gone_;
  }

  // `num_texts`: under way or waiting.
  std::string text(const infer::EngineCounters& engine, int64_t num_texts, int64_t num_connections) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> replies_;
  Histogram seconds_, seconds_to_first_token_;
  int64_t num_gone_ = 0;
};

}  // namespace espalier::serve
