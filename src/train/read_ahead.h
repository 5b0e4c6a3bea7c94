// The micro-batches of the next step, read by a thread of their own while a device computes this one.
#pragma once

#include <cstdint>
#include <future>
#include <vector>

#include "train/loader.h"

namespace espalier::train {

class ReadAhead {
 public:
  struct Request {  // Loader::read's
    int64_t first = 0, num_micro_batches = 0, micro_batch_size = 0;
    bool operator==(const Request&) const = default;
  };

  explicit ReadAhead(const Loader& loader) : loader_(loader) {}  // which outlives it
  ~ReadAhead() { wait(); }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // What Loader::read gives, or throws: what begin() began, if that was asked for.
  std::vector<tensor::Batch> read(const Request& request);
  // Nothing that is begun is lost: another request is read when it is asked for.
  void begin(const Request& request);
  // Until nothing is being read.
  void wait() const {
    if (begun_.valid()) begun_.wait();
  }

 private:
  const Loader& loader_;
  Request request_;
  std::future<std::vector<tensor::Batch>> begun_;
};

}  // namespace espalier::train
