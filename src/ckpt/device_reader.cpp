#include "ckpt/device_reader.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace espalier::ckpt {
namespace {

constexpr int64_t kGrain = int64_t{4} << 20;

void copy_in_parallel(const uint8_t* from, int64_t bytes, uint8_t* to) {
  at::parallel_for(0, bytes, kGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

// The moment at which the device has done what it was told so far.
class Arrival {
 public:
  explicit Arrival(at::Device device) {
    if (device.is_cpu()) return;  // copies there return when they are done
    event_.emplace(device.type());
    event_->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
  void wait() const {
    if (event_) event_->synchronize();
  }

 private:
  std::optional<c10::Event> event_;
};

}  // namespace

DeviceReader::DeviceReader(at::Device device, int64_t block_bytes) : device_(device), block_bytes_(block_bytes) {}

void DeviceReader::start(const uint8_t* from, int64_t bytes, const at::Tensor& block) const {
  const auto options = at::TensorOptions().dtype(at::kByte).device(device_);
  const at::Tensor source = at::from_blob(const_cast<uint8_t*>(from), {bytes}, options);
  block.narrow(0, 0, bytes).copy_(source, /*non_blocking=*/true);
}

void DeviceReader::read(const uint8_t* from, int64_t bytes, uint8_t* to) {
  const auto options = at::TensorOptions().dtype(at::kByte).pinned_memory(!device_.is_cpu());
  for (at::Tensor& block : blocks_)
    if (!block.defined()) block = at::empty({block_bytes_}, options);
  const auto size_at = [&](int64_t begin) { return std::min(block_bytes_, bytes - begin); };
  std::optional<Arrival> arrivals[2];
  const auto begin_block = [&](int64_t begin, size_t turn) {
    if (begin >= bytes) return;
    start(from + begin, size_at(begin), blocks_[turn]);
    arrivals[turn].emplace(device_);
  };
  begin_block(0, 0);
  size_t turn = 0;
  for (int64_t begin = 0; begin < bytes; begin += block_bytes_, turn = 1 - turn) {
    begin_block(begin + block_bytes_, 1 - turn);
    arrivals[turn]->wait();
    copy_in_parallel(static_cast<const uint8_t*>(blocks_[turn].const_data_ptr()), size_at(begin), to + begin);
  }
}

}  // namespace espalier::ckpt
