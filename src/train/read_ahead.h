// The micro-batches of the next step, read by a thread of their own while a device computes this one.
//
// Whoever is done with it, also by an error, waits for a read that has begun: the data that it reads go next. Of a file
// system that does not answer such a wait has no end. So the rank says that it waits for files, its launcher's hang
// watch names it and ends it, and without a launcher there is a warning.
#pragma once

#include <chrono>
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

  // `loader` outlives it. After `patience` a wait is reported.
  explicit ReadAhead(const Loader& loader, std::chrono::milliseconds patience = std::chrono::seconds(30))
      : loader_(loader), patience_(patience) {}
  ~ReadAhead() { wait(); }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // What Loader::read gives, or throws: what begin() began, if that was asked for.
  std::vector<tensor::Batch> read(const Request& request);
  // Nothing that is begun is lost: another request is read when it is asked for.
  void begin(const Request& request);
  // Until nothing is being read.
  void wait() const;

 private:
  const Loader& loader_;
  std::chrono::milliseconds patience_;
  Request request_;
  std::future<std::vector<tensor::Batch>> begun_;
};

}  // namespace espalier::train
