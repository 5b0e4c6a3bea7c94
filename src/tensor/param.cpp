#include "tensor/param.h"

#include "base/error.h"

namespace espalier::tensor {

void GradQueue::push(Param& param, std::function<void()> work) {
  Work item{&param, std::move(work)};
  if (mode_ == Mode::kImmediate)
    run(item);
  else
    pending_.push_back(std::move(item));
}

void GradQueue::run(Work& work) {
  work.run();
  if (on_added_) on_added_(*work.param);
}

void GradQueue::drain() {
  std::vector<Work> pending;
  pending.swap(pending_);
  for (Work& work : pending) run(work);
}

void GradQueue::set_mode(Mode mode) {
  ESPALIER_CHECK(pending_.empty(), pending_.size(), " pieces of work are still waiting");
  mode_ = mode;
}

}  // namespace espalier::tensor
