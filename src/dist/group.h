// Processes that exchange tensors, and what they exchange: a thin, dull layer over c10d (backend.h).
//
// Collectives are called by all ranks of the group, in the same order. A group of one does nothing and costs nothing.
// Tensors are contiguous; those on a device go by the group's backend for it, and messages between two ranks by a line
// between them, or through the memory of their machines where there is none. Every call waits for its result unless it
// returns Pending.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class Backend;
class Work;
}  // namespace c10d

namespace espalier::dist {

// An exchange under way. The tensors that were given to it stay untouched until wait() has returned.
class Pending {
 public:
  Pending();  // nothing to wait for
  Pending(std::string group, const char* operation, c10::intrusive_ptr<c10d::Work> work, std::vector<at::Tensor> keep);
  ~Pending();
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;
  // Returns when done; throws UserError when a peer is gone. Once.
  void wait();
  bool active() const;
  // What wait() does when the exchange is done.
  void deliver(std::function<void()> deliver);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One way from a rank of a group to another, for tensors on a device: messages come out in the order in which they went
// in, and those of one line do not wait for those of another.
struct Line {
  int64_t from = 0, to = 0;
  int number = 0;
  auto operator<=>(const Line&) const = default;
};

class Group {
 public:
  // The group of this process alone.
  Group();
  // `ranks`: global ranks in the order of the group; this process is entry `rank` of them.
  // `device_backend`: for tensors that are not on the CPU; null where there are none.
  Group(std::string name, std::vector<int64_t> ranks, int64_t rank, c10::intrusive_ptr<c10d::Backend> backend,
        c10::intrusive_ptr<c10d::Backend> device_backend = {});
  Group(const Group&);
  Group& operator=(const Group&);
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  ~Group();

  const std::string& name() const { return name_; }
  int64_t size() const { return static_cast<int64_t>(ranks_.size()); }
  int64_t rank() const { return rank_; }
  const std::vector<int64_t>& ranks() const { return ranks_; }

  void all_reduce(const at::Tensor& values) const;  // sum, in place
  void all_reduce_max(const at::Tensor& values) const;
  Pending start_all_reduce(const at::Tensor& values) const;
  // result [size * n0, ...] = the ranks' parts [n0, ...], one after the other.
  at::Tensor all_gather(const at::Tensor& part) const;
  void all_gather_into(const at::Tensor& result, const at::Tensor& part) const;
  Pending start_all_gather_into(const at::Tensor& result, const at::Tensor& part) const;
  // values [size * n0, ...] -> this rank's part [n0, ...] of the sum.
  at::Tensor reduce_scatter(const at::Tensor& values) const;
  void reduce_scatter_into(const at::Tensor& part, const at::Tensor& values) const;
  Pending start_reduce_scatter_into(const at::Tensor& part, const at::Tensor& values) const;
  // values [size, n, ...]: entry r goes to rank r; result: entry r came from rank r.
  at::Tensor all_to_all(const at::Tensor& values) const;
  Pending start_all_to_all_into(const at::Tensor& result, const at::Tensor& values) const;
  void broadcast(const at::Tensor& values, int64_t root) const;
  void barrier() const;

  // `peer` is a rank of the group. `tag` distinguishes messages between the same two ranks; tensors on a device go by
  // the line of this `number`, where the group has lines, in order and whatever their tags.
  Pending start_send(const at::Tensor& values, int64_t peer, int tag, int number = 0) const;
  Pending start_receive(const at::Tensor& values, int64_t peer, int tag, int number = 0) const;

  // This process's lines for tensors on `device`, each a backend of two ranks: who sends, and who receives.
  void set_lines(at::Device device, std::map<Line, c10::intrusive_ptr<c10d::Backend>> lines);

  // Sums in the order of the ranks, in double: the same bits on every rank.
  std::vector<double> sum(const std::vector<double>& values) const;
  double sum(double value) const { return sum(std::vector<double>{value})[0]; }
  // For each entry, whether it is true on any rank.
  std::vector<bool> any(const std::vector<bool>& here) const;
  bool any(bool here) const { return any(std::vector<bool>{here})[0]; }
  // Every rank's text, in order.
  std::vector<std::string> gather_texts(const std::string& text) const;

 private:
  struct Lines;
  template <class Start>
  Pending start(const char* operation, std::vector<at::Tensor> tensors, const Start& start) const;
  template <class Start>
  Pending start_on(c10d::Backend& backend, const char* operation, std::vector<at::Tensor> tensors,
                   const Start& start) const;
  // Null where the values do not go by one.
  c10d::Backend* line_of(const at::Tensor& values, const Line& line) const;
  Pending start_on_line(c10d::Backend& line, const char* operation, const at::Tensor& values) const;

  std::string name_;
  std::vector<int64_t> ranks_;
  int64_t rank_ = 0;
  c10::intrusive_ptr<c10d::Backend> backend_, device_backend_;
  std::shared_ptr<const Lines> lines_;  // null: none
};

}  // namespace espalier::dist
