#include "tensor/param.h"

#include <iterator>
#include <utility>

#include "base/error.h"

namespace espalier::tensor {

void settle_grad(Param& param) {
  if (param.grad_is_stale) param.grad.zero_();
  param.grad_is_stale = false;
}

void GradQueue::push(Param& param, std::function<void()> add) {
  push_write(param, [&param, add = std::move(add)](GradWrite write) {
    if (write == GradWrite::kOverwrite) param.grad.zero_();
    add();
  });
}

GradWrite GradQueue::prepare_write(Param& param) {
  if (before_add_) before_add_(param);
  return std::exchange(param.grad_is_stale, false) ? GradWrite::kOverwrite : GradWrite::kAdd;
}

void GradQueue::push_write(Param& param, std::function<void(GradWrite)> write) {
  Work item{&param, std::move(write)};
  if (mode_ == Mode::kImmediate)
    run(item);
  else
    pending_.push_back(std::move(item));
}

void GradQueue::run(Work& work) {
  work.write(prepare_write(*work.param));
  if (on_added_) on_added_(*work.param);
}

void GradQueue::drain(size_t count) {
  ESPALIER_CHECK(count <= pending_.size(), count, " pieces of ", pending_.size());
  const auto end = pending_.begin() + static_cast<std::ptrdiff_t>(count);
  std::vector<Work> oldest(std::make_move_iterator(pending_.begin()), std::make_move_iterator(end));
  pending_.erase(pending_.begin(), end);
  for (Work& work : oldest) run(work);
}

void GradQueue::set_mode(Mode mode) {
  ESPALIER_CHECK(pending_.empty(), pending_.size(), " pieces of work are still waiting");
  mode_ = mode;
}

}  // namespace espalier::tensor
