#include "tests/support/ordered_lines.h"

#include <ATen/ATen.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/error.h"

namespace espalier::test {
namespace {

class Message final : public c10d::Work {
 public:
  explicit Message(at::Tensor destination) : destination_(std::move(destination)) {}

  void arrive(std::vector<uint8_t> bytes) {
    arrived_ = std::move(bytes);
    finish();
  }
  bool wait(std::chrono::milliseconds timeout) override {
    c10d::Work::wait(timeout);
    if (destination_.defined()) std::memcpy(destination_.mutable_data_ptr(), arrived_.data(), arrived_.size());
    return true;
  }

 private:
  at::Tensor destination_;  // undefined for the sender
  std::vector<uint8_t> arrived_;
};

class OrderedLine final : public c10d::Backend {
 public:
  OrderedLine(c10::intrusive_ptr<c10d::Store> store, int64_t rank)
      : Backend(static_cast<int>(rank), 2), store_(std::move(store)), thread_([this] { work_off(); }) {}
  ~OrderedLine() override { leave(); }

  const std::string getBackendName() const override { return "ordered line"; }
  void shutdown() override { leave(); }
  void abort() override { leave(); }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    ESPALIER_CHECK(options.rootRank == 0 && tensors.size() == 1);
    const at::Tensor& values = tensors[0];
    const std::string key = "message " + std::to_string(count_++);
    const auto message = c10::make_intrusive<Message>(getRank() == 0 ? at::Tensor() : values);
    if (getRank() == 0) {
      // Read when its turn comes, as a device would.
      push([this, key, values, message] {
        const auto* const begin = static_cast<const uint8_t*>(values.const_data_ptr());
        store_->set(key, std::vector<uint8_t>(begin, begin + values.nbytes()));
        store_->wait({key + " taken"});
        message->arrive({});
      });
    } else {
      values.fill_(std::numeric_limits<double>::quiet_NaN());
      push([this, key, message] {
        std::vector<uint8_t> bytes = store_->get(key);
        store_->set(key + " taken", std::vector<uint8_t>{1});
        message->arrive(std::move(bytes));
      });
    }
    return message;
  }

 private:
  void push(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    wake_.notify_one();
  }

  void work_off() {
    for (;;) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return leaving_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
    }
  }

  void leave() {
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  c10::intrusive_ptr<c10d::Store> store_;
  int64_t count_ = 0;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> queue_;
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_ordered_line(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t,
                                                    std::chrono::milliseconds) {
  return c10::make_intrusive<OrderedLine>(store, rank);
}

}  // namespace espalier::test
