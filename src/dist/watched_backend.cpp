#include "dist/watched_backend.h"

#include <exception>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "base/log.h"
#include "dist/device_watch.h"

namespace espalier::dist {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

class WatchedBackend final : public c10d::Backend {
 public:
  WatchedBackend(c10::intrusive_ptr<c10d::Backend> inner, std::string group, std::shared_ptr<DeviceWatch> watch)
      : Backend(inner->getRank(), inner->getSize()),
        inner_(std::move(inner)),
        group_(std::move(group)),
        watch_(std::move(watch)) {}

  ~WatchedBackend() override {
    try {
      if (std::uncaught_exceptions() == 0)
        inner_->shutdown();
      else
        inner_->abort();
    } catch (const std::exception& error) {
      log_warning("group '", group_, "' could not be shut down: ", error.what());
    }
  }

  const std::string getBackendName() const override { return inner_->getBackendName(); }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    return seen(inner_->allreduce(tensors, options));
  }
  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    return seen(inner_->broadcast(tensors, options));
  }
  WorkPtr _allgather_base(at::Tensor& result, at::Tensor& part, const c10d::AllgatherOptions& options) override {
    return seen(inner_->_allgather_base(result, part, options));
  }
  WorkPtr _reduce_scatter_base(at::Tensor& part, at::Tensor& values,
                               const c10d::ReduceScatterOptions& options) override {
    return seen(inner_->_reduce_scatter_base(part, values, options));
  }
  WorkPtr alltoall_base(at::Tensor& result, at::Tensor& values, std::vector<int64_t>& result_sizes,
                        std::vector<int64_t>& value_sizes, const c10d::AllToAllOptions& options) override {
    return seen(inner_->alltoall_base(result, values, result_sizes, value_sizes, options));
  }
  WorkPtr barrier(const c10d::BarrierOptions& options) override { return seen(inner_->barrier(options)); }

 private:
  WorkPtr seen(WorkPtr work) const {
    watch_->add(group_, work);
    return work;
  }

  c10::intrusive_ptr<c10d::Backend> inner_;
  std::string group_;
  std::shared_ptr<DeviceWatch> watch_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> watched(c10::intrusive_ptr<c10d::Backend> inner, std::string group,
                                          std::shared_ptr<DeviceWatch> watch) {
  return c10::make_intrusive<WatchedBackend>(std::move(inner), std::move(group), std::move(watch));
}

}  // namespace espalier::dist
