#include "train/read_ahead.h"

#include <ATen/Parallel.h>
#include <omp.h>

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

}  // namespace espalier::train
