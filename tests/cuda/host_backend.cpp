// The device that this machine stands in for, as a device type of libtorch: its tensors are in DeviceMemory, which the
// host cannot read, so that what works with it would with a GPU's. Libtorch's own ops run on the CPU, on the same
// memory.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "tests/cuda/device_under_test.h"
#include "tests/support/device_memory.h"

namespace espalier::cuda_test {
namespace {

using cuda::DeviceMemory;

constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr auto kKey = c10::DispatchKey::PrivateUse1;

void release(void* memory) { DeviceMemory::instance().release(memory); }

class Allocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, device_under_test()};
    void* const memory = DeviceMemory::instance().allocate(bytes);
    return {memory, memory, &release, device_under_test()};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    const DeviceMemory::Open open;
    std::memcpy(to, from, bytes);
  }
};
Allocator* allocator() {
  static auto* const allocator = new Allocator;
  return allocator;
}

// One stream, on which everything has happened when it was asked for.
struct Guard : c10::impl::NoOpDeviceGuardImpl<kType> {
  static c10::Stream stream() { return c10::Stream(c10::Stream::DEFAULT, device_under_test()); }
  c10::Device exchangeDevice(c10::Device) const override { return device_under_test(); }
  c10::Device getDevice() const override { return device_under_test(); }
  c10::Stream getStream(c10::Device) const noexcept override { return stream(); }
  c10::Stream exchangeStream(c10::Stream) const noexcept override { return stream(); }
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

struct Hooks : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  at::Device getDeviceFromPtr(void*) const override { return device_under_test(); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetAllocator(at::kCPU); }
};

at::Tensor empty(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device>, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  return at::detail::empty_generic(sizes, allocator(), c10::DispatchKeySet(kKey), c10::dtype_or_default(type), format);
}
at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<at::ScalarType> type,
                         std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  return at::detail::empty_strided_generic(sizes, strides, allocator(), c10::DispatchKeySet(kKey),
                                           c10::dtype_or_default(type));
}

// The same memory as a tensor of the CPU, for where it is open.
at::Tensor seen_from_cpu(const at::Tensor& x) {
  if (!x.defined() || x.device().type() != kType) return x;
  const c10::Storage& own = x.storage();
  c10::Storage storage(c10::Storage::use_byte_size_t(), own.nbytes(), c10::DataPtr(own.mutable_data(), at::kCPU),
                       c10::GetAllocator(at::kCPU), /*resizable=*/true);
  at::Tensor seen = at::detail::make_tensor<c10::TensorImpl>(std::move(storage),
                                                             c10::DispatchKeySet(c10::DispatchKey::CPU), x.dtype());
  seen.unsafeGetTensorImpl()->set_sizes_and_strides(x.sizes(), x.strides(), x.storage_offset());
  return seen;
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool) {
  const DeviceMemory::Open open;
  seen_from_cpu(to).copy_(seen_from_cpu(from));
  return to;
}

// The arguments of an op, and which tensors of the CPU are there in their place.
class Exchange {
 public:
  void to_cpu(c10::IValue& value) {
    each_tensor(value, [this](const at::Tensor& own) {
      const at::Tensor seen = seen_from_cpu(own);
      if (!seen.is_same(own)) exchanged_.emplace_back(own, seen);
      if (seen.is_same(own) && own.defined() && own.dim() > 0) has_cpu_ = true;
      return seen;
    });
  }
  // Of results that were to be as large as they get.
  void resize() const {
    for (const auto& [own, seen] : exchanged_) {
      if (seen.storage().data() == own.storage().data()) continue;
      const at::Tensor grown = at::empty_strided(seen.sizes(), seen.strides(), own.options());
      own.unsafeGetTensorImpl()->shallow_copy_from(copy_from(seen, grown, false).getIntrusivePtr());
    }
  }
  bool mixes_devices() const { return has_cpu_ && !exchanged_.empty(); }
  // A result: an argument, a part of one, or new.
  void to_device(c10::IValue& value) const {
    each_tensor(value, [this](const at::Tensor& result) {
      if (!result.defined()) return result;
      for (const auto& [own, seen] : exchanged_) {
        if (result.is_same(seen)) return own;
        if (result.numel() > 0 && result.storage().data() == own.storage().data())
          return at::native::as_strided_tensorimpl(own, result.sizes(), result.strides(), result.storage_offset());
      }
      const at::Tensor own =
          at::empty_strided(result.sizes(), result.strides(), result.options().device(device_under_test()));
      return copy_from(result, own, false);
    });
  }

 private:
  template <class Give>
  static void each_tensor(c10::IValue& value, const Give& give) {
    if (value.isTensor()) {
      value = give(value.toTensor());
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      c10::List<c10::IValue> list = value.toList().copy();
      for (size_t i = 0; i < list.size(); ++i) {
        c10::IValue element = list.get(i);
        each_tensor(element, give);
        list.set(i, element);
      }
      value = list;
    }
  }

  std::vector<std::pair<at::Tensor, at::Tensor>> exchanged_;
  bool has_cpu_ = false;
};

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const DeviceMemory::Open open;
  Exchange exchange;
  const auto last = [&](size_t count) { return std::span(*stack).last(count); };
  for (c10::IValue& argument : last(op.schema().arguments().size())) exchange.to_cpu(argument);
  TORCH_CHECK(!exchange.mixes_devices(), op.schema().name(), ": tensors of the device and of the CPU");
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  exchange.resize();
  for (c10::IValue& result : last(op.schema().returns().size())) exchange.to_device(result);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("_copy_from", &copy_from);
}

const bool is_known = [] {
  c10::register_privateuse1_backend("gpu_on_host");
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  c10::SetAllocator(kType, allocator());
  return true;
}();

}  // namespace
}  // namespace espalier::cuda_test
