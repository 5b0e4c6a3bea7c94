#include "dist/group.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/whereabouts.h"
#include "base/work_profile.h"

namespace espalier::dist {
namespace {

// What c10d throws when a peer is gone says neither which group nor what to do.
template <class Function>
void naming_group(const std::string& group, const Function& function) {
  try {
    function();
  } catch (const c10::Error& error) {
    throw UserError(
        concat("the exchange with the other processes of group '", group, "' failed: ", error.what_without_backtrace(),
               "\nUsually another process has ended: look for the first error among all ranks."),
        ExitCode::kLostPeer);
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    throw UserError(concat("the exchange with the other processes of group '", group, "' failed: ", error.what(),
                           "\nUsually another process has ended: look for the first error among all ranks."),
                    ExitCode::kLostPeer);
  }
}

}  // namespace

struct Pending::State {
  std::string group;
  const char* operation;
  c10::intrusive_ptr<c10d::Work> work;
  std::vector<at::Tensor> keep;
  std::function<void()> deliver;
};

Pending::Pending() = default;
Pending::~Pending() = default;
Pending::Pending(Pending&&) noexcept = default;
Pending& Pending::operator=(Pending&&) noexcept = default;

Pending::Pending(std::string group, const char* operation, c10::intrusive_ptr<c10d::Work> work,
                 std::vector<at::Tensor> keep)
    : state_(std::make_unique<State>(State{std::move(group), operation, std::move(work), std::move(keep), {}})) {}

bool Pending::active() const { return state_ != nullptr; }

void Pending::deliver(std::function<void()> deliver) { state_->deliver = std::move(deliver); }

void Pending::wait() {
  if (!state_) return;
  const std::unique_ptr<State> state = std::move(state_);
  const WorkSpan span(Work::kCommunication, state->operation);
  const WaitsFor waits(Waiting::kPeers, state->operation, state->group);
  naming_group(state->group, [&] { state->work->wait(); });
  if (state->deliver) state->deliver();
}

Group::Group() : name_("single"), ranks_{0} {}

Group::Group(std::string name, std::vector<int64_t> ranks, int64_t rank, c10::intrusive_ptr<c10d::Backend> backend,
             c10::intrusive_ptr<c10d::Backend> device_backend)
    : name_(std::move(name)),
      ranks_(std::move(ranks)),
      rank_(rank),
      backend_(std::move(backend)),
      device_backend_(std::move(device_backend)) {
  ESPALIER_CHECK(size() == 1 || backend_, "group ", name_, " of ", size(), " has no backend");
}

Group::Group(const Group&) = default;
Group& Group::operator=(const Group&) = default;
Group::Group(Group&&) noexcept = default;
Group& Group::operator=(Group&&) noexcept = default;
Group::~Group() = default;

struct Group::Lines {
  at::Device device;
  std::map<Line, c10::intrusive_ptr<c10d::Backend>> backends;
};

void Group::set_lines(at::Device device, std::map<Line, c10::intrusive_ptr<c10d::Backend>> lines) {
  lines_ = std::make_shared<const Lines>(Lines{device, std::move(lines)});
}

template <class Start>
Pending Group::start(const char* operation, std::vector<at::Tensor> tensors, const Start& start) const {
  const bool on_device = !tensors.empty() && !tensors[0].is_cpu();
  const c10::intrusive_ptr<c10d::Backend>& backend = on_device ? device_backend_ : backend_;
  ESPALIER_CHECK(backend, "group ", name_, " has no backend for tensors on ", tensors[0].device());
  return start_on(*backend, operation, std::move(tensors), start);
}

template <class Start>
Pending Group::start_on(c10d::Backend& backend, const char* operation, std::vector<at::Tensor> tensors,
                        const Start& start) const {
  for (const at::Tensor& tensor : tensors)
    ESPALIER_CHECK(tensor.is_contiguous(), "group ", name_, ": strides ", tensor.strides());
  const WorkSpan span(Work::kCommunication, operation);
  c10::intrusive_ptr<c10d::Work> work;
  naming_group(name_, [&] { work = start(backend, tensors); });
  return Pending(name_, operation, std::move(work), std::move(tensors));
}

Pending Group::start_all_reduce(const at::Tensor& values) const {
  if (size() == 1) return {};
  return start("all-reduce", {values},
               [&](c10d::Backend& backend, std::vector<at::Tensor>& tensors) { return backend.allreduce(tensors); });
}

void Group::all_reduce(const at::Tensor& values) const { start_all_reduce(values).wait(); }

void Group::all_reduce_max(const at::Tensor& values) const {
  if (size() == 1) return;
  start("all-reduce", {values}, [&](c10d::Backend& backend, std::vector<at::Tensor>& tensors) {
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    return backend.allreduce(tensors, options);
  }).wait();
}

at::Tensor Group::all_gather(const at::Tensor& part) const {
  if (size() == 1) return part;
  std::vector<int64_t> shape = part.sizes().vec();
  ESPALIER_CHECK(!shape.empty(), "a scalar cannot be gathered");
  shape[0] *= size();
  const at::Tensor result = at::empty(shape, part.options());
  all_gather_into(result, part);
  return result;
}

void Group::all_gather_into(const at::Tensor& result, const at::Tensor& part) const {
  start_all_gather_into(result, part).wait();
}

Pending Group::start_all_gather_into(const at::Tensor& result, const at::Tensor& part) const {
  ESPALIER_CHECK(result.numel() == part.numel() * size(), result.sizes(), " gathered from ", size(), " x ",
                 part.sizes());
  if (size() == 1) {
    if (result.const_data_ptr() != part.const_data_ptr()) result.copy_(part.view_as(result));
    return {};
  }
  return start("all-gather", {result.view({-1}), part.view({-1})},
               [&](c10d::Backend& backend, std::vector<at::Tensor>& tensors) {
                 return backend._allgather_base(tensors[0], tensors[1]);
               });
}

at::Tensor Group::reduce_scatter(const at::Tensor& values) const {
  if (size() == 1) return values;
  std::vector<int64_t> shape = values.sizes().vec();
  ESPALIER_CHECK(!shape.empty() && shape[0] % size() == 0, values.sizes(), " over ", size(), " ranks");
  shape[0] /= size();
  const at::Tensor part = at::empty(shape, values.options());
  reduce_scatter_into(part, values);
  return part;
}

void Group::reduce_scatter_into(const at::Tensor& part, const at::Tensor& values) const {
  start_reduce_scatter_into(part, values).wait();
}

Pending Group::start_reduce_scatter_into(const at::Tensor& part, const at::Tensor& values) const {
  ESPALIER_CHECK(values.numel() == part.numel() * size(), values.sizes(), " scattered to ", size(), " x ",
                 part.sizes());
  if (size() == 1) {
    if (values.const_data_ptr() != part.const_data_ptr()) part.copy_(values.view_as(part));
    return {};
  }
  return start("reduce-scatter", {part.view({-1}), values.view({-1})},
               [&](c10d::Backend& backend, std::vector<at::Tensor>& tensors) {
                 return backend._reduce_scatter_base(tensors[0], tensors[1]);
               });
}

at::Tensor Group::all_to_all(const at::Tensor& values) const {
  if (size() == 1) return values;
  const at::Tensor result = at::empty_like(values);
  start_all_to_all_into(result, values).wait();
  return result;
}

Pending Group::start_all_to_all_into(const at::Tensor& result, const at::Tensor& values) const {
  ESPALIER_CHECK(values.dim() > 0 && values.size(0) == size() && result.sizes() == values.sizes(), values.sizes(),
                 " to ", result.sizes(), " over ", size(), " ranks");
  if (size() == 1) {
    result.copy_(values);
    return {};
  }
  return start("all-to-all", {result, values}, [&](c10d::Backend& backend, std::vector<at::Tensor>& tensors) {
    std::vector<int64_t> equal_parts;
    return backend.alltoall_base(tensors[0], tensors[1], equal_parts, equal_parts);
  });
}

void Group::broadcast(const at::Tensor& values, int64_t root) const {
  if (size() == 1) return;
  start("broadcast", {values}, [&](c10d::Backend& backend, std::vector<at::Tensor>& tensors) {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    return backend.broadcast(tensors, options);
  }).wait();
}

void Group::barrier() const {
  if (size() == 1) return;
  start("barrier", {}, [&](c10d::Backend& backend, std::vector<at::Tensor>&) { return backend.barrier(); }).wait();
}

c10d::Backend* Group::line_of(const at::Tensor& values, const Line& line) const {
  if (lines_ == nullptr || values.device() != lines_->device) return nullptr;
  const auto found = lines_->backends.find(line);
  ESPALIER_CHECK(found != lines_->backends.end(), "group ", name_, " has no line ", line.number, " from rank ",
                 line.from, " to ", line.to);
  return found->second.get();
}

// A message is a broadcast to one: unlike a device's sends and receives it has a communicator that exists already. What
// watches a device's work holds its tensors for a while: not the gradient of a message that is a leaf.
Pending Group::start_on_line(c10d::Backend& line, const char* operation, const at::Tensor& values) const {
  return start_on(line, operation, {values.detach()}, [](c10d::Backend& backend, std::vector<at::Tensor>& tensors) {
    return backend.broadcast(tensors, c10d::BroadcastOptions{});
  });
}

Pending Group::start_send(const at::Tensor& values, int64_t peer, int tag, int number) const {
  if (c10d::Backend* const line = line_of(values, {rank_, peer, number})) return start_on_line(*line, "send", values);
  return start("send", {values.cpu()}, [&](c10d::Backend& backend, std::vector<at::Tensor>& tensors) {
    return backend.send(tensors, static_cast<int>(peer), tag);
  });
}

Pending Group::start_receive(const at::Tensor& values, int64_t peer, int tag, int number) const {
  if (c10d::Backend* const line = line_of(values, {peer, rank_, number}))
    return start_on_line(*line, "receive", values);
  const at::Tensor host = values.is_cpu() ? values : at::empty(values.sizes(), values.scalar_type());
  Pending pending = start("receive", {host}, [&](c10d::Backend& backend, std::vector<at::Tensor>& tensors) {
    return backend.recv(tensors, static_cast<int>(peer), tag);
  });
  if (!values.is_cpu()) pending.deliver([values, host] { values.copy_(host); });
  return pending;
}

std::vector<double> Group::sum(const std::vector<double>& values) const {
  if (size() == 1) return values;
  const at::Tensor part = at::empty({static_cast<int64_t>(values.size())}, at::kDouble);
  std::memcpy(part.mutable_data_ptr(), values.data(), values.size() * sizeof(double));
  const at::Tensor all = all_gather(part);
  const double* gathered = all.const_data_ptr<double>();
  std::vector<double> total(values.size(), 0.0);
  for (int64_t from = 0; from < size(); ++from)
    for (size_t i = 0; i < values.size(); ++i) total[i] += gathered[static_cast<size_t>(from) * values.size() + i];
  return total;
}

std::vector<bool> Group::any(const std::vector<bool>& here) const {
  if (size() == 1) return here;
  const at::Tensor flags = at::zeros({static_cast<int64_t>(here.size())}, at::kInt);
  int* const flag = flags.mutable_data_ptr<int>();
  for (size_t i = 0; i < here.size(); ++i) flag[i] = here[i] ? 1 : 0;
  all_reduce_max(flags);
  return std::vector<bool>(flag, flag + here.size());  // braces would make a list of two pointers, both true
}

std::vector<std::string> Group::gather_texts(const std::string& text) const {
  if (size() == 1) return {text};
  const at::Tensor longest = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  const at::Tensor lengths = all_gather(longest.clone());
  all_reduce_max(longest);
  const int64_t width = std::max<int64_t>(1, longest.item<int64_t>());
  const at::Tensor bytes = at::zeros({width}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  const at::Tensor all = all_gather(bytes);
  std::vector<std::string> texts;
  for (int64_t from = 0; from < size(); ++from)
    texts.emplace_back(static_cast<const char*>(all.const_data_ptr()) + from * width,
                       static_cast<size_t>(lengths[from].item<int64_t>()));
  return texts;
}

}  // namespace espalier::dist
