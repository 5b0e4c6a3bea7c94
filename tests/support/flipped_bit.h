// A bit of a gradient that turns over while a run computes, as in a machine whose memory or arithmetic is at fault.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "tensor/observe.h"

namespace espalier::test {

// Turns over `bit` of the middle element of what `operation` shows in that pass, the `which`-th time (from 1 on).
class FlippedBit : public tensor::TensorObserver {
 public:
  FlippedBit(std::string operation, tensor::Pass pass, int64_t which, int bit)
      : operation_(std::move(operation)), pass_(pass), which_(which), bit_(bit) {
    tensor::set_observer(this);
  }
  ~FlippedBit() override { tensor::set_observer(nullptr); }
  FlippedBit(const FlippedBit&) = delete;
  FlippedBit& operator=(const FlippedBit&) = delete;

  bool has_flipped() const { return seen_ >= which_; }
  void see(const std::string& operation, const at::Tensor& values, const tensor::ObservedPlace& place) override {
    if (operation != operation_ || place.pass != pass_ || ++seen_ != which_) return;
    const int64_t byte = values.numel() / 2 * values.element_size() + bit_ / 8;
    static_cast<uint8_t*>(values.mutable_data_ptr())[byte] ^= static_cast<uint8_t>(1 << bit_ % 8);
  }

 private:
  std::string operation_;
  tensor::Pass pass_;
  int64_t which_, seen_ = 0;
  int bit_;
};

}  // namespace espalier::test
