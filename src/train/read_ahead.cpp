#include "train/read_ahead.h"

#include <ATen/Parallel.h>
#include <omp.h>

#include "base/format.h"
#include "base/log.h"
#include "base/whereabouts.h"

namespace espalier::train {

std::vector<tensor::Batch> ReadAhead::read(const Request& request) {
  if (begun_.valid()) {
    wait();
    auto begun = std::move(begun_);
    if (request == request_) return begun.get();
  }
  return loader_.read(request.first, request.num_micro_batches, request.micro_batch_size);
}

void ReadAhead::begin(const Request& request) {
  wait();
  request_ = request;
  begun_ = std::async(std::launch::async, [this, request] {
    // Alone: a team of threads for every step would cost more than it reads. Asking makes ATen set its own number
    // first.
    at::get_num_threads();
    omp_set_num_threads(1);
    return loader_.read(request.first, request.num_micro_batches, request.micro_batch_size);
  });
}

void ReadAhead::wait() const {
  if (!begun_.valid()) return;
  const WaitsFor waits(Waiting::kFiles, "reading", "the next step's samples");
  if (begun_.wait_for(patience_) == std::future_status::ready) return;
  log_warning("samples ", request_.first, " and later of the run are still being read after ",
              format_duration(std::chrono::duration<double>(patience_).count()),
              ": does the file system of the training data answer?");
  begun_.wait();
}

}  // namespace espalier::train
