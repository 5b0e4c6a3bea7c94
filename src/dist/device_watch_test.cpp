// Exchanges on a device that never end, with a backend whose exchanges end when the test says so.
#include "dist/device_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "dist/watched_backend.h"

namespace espalier::dist {
namespace device_watch_test {

using namespace std::chrono_literals;

class ManualWork : public c10d::Work {
 public:
  bool isCompleted() override { return done; }
  std::exception_ptr exception() const override {
    return failed ? std::make_exception_ptr(std::runtime_error("remote process exited\nmore")) : nullptr;
  }
  std::atomic<bool> done = false, failed = false;
};

class ManualBackend : public c10d::Backend {
 public:
  ManualBackend() : Backend(0, 2) {}
  const std::string getBackendName() const override { return "manual"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    return work;
  }
  void shutdown() override { ++num_shutdowns; }
  void abort() override { ++num_aborts; }
  c10::intrusive_ptr<ManualWork> work = c10::make_intrusive<ManualWork>();
  int num_shutdowns = 0, num_aborts = 0;
};

class DeviceWatchTest : public testing::Test {
 protected:
  std::shared_ptr<DeviceWatch> watch_for(std::chrono::milliseconds timeout) {
    return std::make_shared<DeviceWatch>(at::kCPU, timeout, [this](const std::string& text) { said_.set_value(text); });
  }
  void begin(c10d::Backend& backend) {
    std::vector<at::Tensor> none;
    backend.allreduce(none, {});
  }
  std::promise<std::string> said_;
  std::future<std::string> text_ = said_.get_future();
};

TEST_F(DeviceWatchTest, AnExchangeThatDoesNotEndIsNamedAfterItsTime) {
  auto inner = c10::make_intrusive<ManualBackend>();
  const auto backend = watched(inner, "gradient", watch_for(250ms));
  begin(*backend);
  const std::string text = text_.get();
  EXPECT_NE(text.find("group 'gradient' has not ended after"), std::string::npos) << text;
  EXPECT_NE(text.find("--distributed-timeout-minutes"), std::string::npos) << text;
}

TEST_F(DeviceWatchTest, AnExchangeThatFailsIsNamedAtOnceWithOneLineOfItsReason) {
  auto inner = c10::make_intrusive<ManualBackend>();
  const auto backend = watched(inner, "tensor", watch_for(24h));
  begin(*backend);
  inner->work->failed = true;
  const std::string text = text_.get();
  EXPECT_NE(text.find("group 'tensor' failed: remote process exited\nUsually another process has ended"),
            std::string::npos)
      << text;
}

TEST_F(DeviceWatchTest, AnExchangeThatEndsIsForgotten) {
  auto inner = c10::make_intrusive<ManualBackend>();
  inner->work->done = true;
  const auto backend = watched(inner, "data", watch_for(50ms));
  begin(*backend);
  EXPECT_EQ(text_.wait_for(600ms), std::future_status::timeout);
}

TEST_F(DeviceWatchTest, TheLastGroupShutsItsBackendDown) {
  auto inner = c10::make_intrusive<ManualBackend>();
  { const std::vector groups(2, watched(inner, "world", watch_for(24h))); }
  EXPECT_EQ(inner->num_shutdowns, 1);
  EXPECT_EQ(inner->num_aborts, 0);
}

TEST_F(DeviceWatchTest, AnErrorOnItsWayOutAbortsItInstead) {
  auto inner = c10::make_intrusive<ManualBackend>();
  const auto fail = [&] {
    const auto backend = watched(inner, "world", watch_for(24h));
    throw std::runtime_error("disk full");
  };
  EXPECT_THROW(fail(), std::runtime_error);
  EXPECT_EQ(inner->num_shutdowns, 0);
  EXPECT_EQ(inner->num_aborts, 1);
}

TEST(LostPeer, EndsTheProcessWithItsCodeAndTheReason) {
  EXPECT_EXIT(end_with_lost_peer("group 'x' is gone"), testing::ExitedWithCode(69), "error: group 'x' is gone");
}

}  // namespace device_watch_test
}  // namespace espalier::dist
