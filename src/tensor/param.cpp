#include "tensor/param.h"

#include <iterator>

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
  prepare(*work.param);
  work.run();
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
