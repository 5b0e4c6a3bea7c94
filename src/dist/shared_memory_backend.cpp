// Collectives and messages of tensors through the memory that the processes of one machine share.
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <utility>

#include "base/error.h"
#include "dist/backend.h"
#include "dist/internal/combination.h"
#include "dist/internal/shared_group.h"

namespace espalier::dist {
namespace {

using c10d::OpType;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

std::string store_text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }
std::vector<uint8_t> store_bytes(const std::string& text) { return {text.begin(), text.end()}; }

// A part of a contiguous tensor that goes through an area in one piece, in elements of one type.
struct Range {
  int64_t begin = 0, count = 0;
};
Range piece(int64_t number, int64_t size, int64_t total) {
  const int64_t begin = std::min(number * size, total);
  return {begin, std::min(size, total - begin)};
}
// What a rank reads of others at a time, of all of them together about what a core's cache holds.
constexpr int64_t kBlocks = 512 << 10, kLeastBlock = 16 << 10;

int64_t num_pieces(int64_t total, int64_t size) { return std::max<int64_t>(1, (total + size - 1) / size); }

// Piece k of the part for every other rank; a part has `part_bytes`, its share of the area `share_bytes`.
void give_shares(const SharedGroup& group, const char* from, int64_t part_bytes, int64_t share_bytes, int64_t k) {
  const Range range = piece(k, share_bytes, part_bytes);
  for (int64_t r = 0; r < group.size(); ++r)
    if (r != group.rank())
      std::memcpy(group.area(group.rank(), k) + r * share_bytes, from + r * part_bytes + range.begin,
                  static_cast<size_t>(range.count));
}

Combination combination_of(c10d::ReduceOp::RedOpType operation, at::ScalarType type) {
  TORCH_CHECK(operation == c10d::ReduceOp::SUM || operation == c10d::ReduceOp::MAX, "only sums and maxima");
  return {operation == c10d::ReduceOp::SUM ? Combination::Kind::kSum : Combination::Kind::kMax, type};
}

// The range of what all ranks show that this rank is to combine: `own` is its memory of that range, `to` that or other
// memory for the result.
void combine_shown(const SharedGroup& group, const Combination& combination, const char* own, char* to, Range range,
                   int64_t width) {
  const int64_t n = group.size(), me = group.rank();
  const int64_t block = std::max(kLeastBlock, kBlocks / n) / width;
  const bool directly = to != own || combination.allows_in_place(me);
  std::vector<char> copies(static_cast<size_t>((n - (directly ? 1 : 0)) * block * width));
  for (int64_t begin = 0; begin < range.count; begin += block) {
    const int64_t count = std::min(block, range.count - begin), bytes = count * width;
    char* free = copies.data();
    std::vector<const void*> sources;
    for (int64_t r = 0; r < n; ++r) {
      if (r == me) {
        sources.push_back(own + begin * width);
        continue;
      }
      group.read_shown(r, (range.begin + begin) * width, free, bytes);
      sources.push_back(std::exchange(free, free + block * width));
    }
    char* const result = to + begin * width;
    combination.run(sources, directly ? result : free, count);
    if (!directly) std::memcpy(result, free, static_cast<size_t>(bytes));
  }
}

class SharedMemoryBackend : public c10d::Backend {
 public:
  SharedMemoryBackend(std::shared_ptr<SharedGroup> group, std::chrono::milliseconds timeout)
      : Backend(static_cast<int>(group->rank()), static_cast<int>(group->size())),
        group_(std::move(group)),
        timeout_(timeout) {}
  // While an error is on its way out peers may not come.
  ~SharedMemoryBackend() override {
    if (std::uncaught_exceptions() > 0) group_->machine().abandon();
  }

  const std::string getBackendName() const override { return "shared memory"; }

  // Every rank combines its own share of what all show, and takes the others' results. Or it gives the others their
  // shares of a piece, and so on with the next piece.
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    const at::Tensor values = the(tensors);
    const Combination combination = combination_of(options.reduceOp.op_, values.scalar_type());
    const int64_t n = group_->size(), me = group_->rank(), width = values.element_size(), total = values.numel();
    char* const data = static_cast<char*>(values.mutable_data_ptr());
    if (values.nbytes() <= kSmallBytes) return all_reduce_small(values, combination);
    const Collective collective = described(OpType::ALLREDUCE, combination.name(), values);
    if (shows(values)) {
      const int64_t share = num_pieces(total, n);
      const auto step = [=, group = group_, keep = Tensors{values}](int64_t k) {
        const Range mine = piece(me, share, total);
        char* const own = data + mine.begin * width;
        if (k == 1) combine_shown(*group, combination, own, own, mine, width);
        if (k != 2) return;
        for (int64_t r = 0; r < n; ++r) {
          const Range part = piece(r, share, total);
          if (r != me) group->read_shown(r, part.begin * width, data + part.begin * width, part.count * width);
        }
      };
      return start(collective, values, 4, step, data);
    }

    const int64_t share = SharedGroup::kAreaBytes / (n * width), size = share * n;
    // Calls copy(share's bytes in the area, in the tensor, count) for the shares of all ranks but this.
    const auto for_others = [=](int64_t number, const auto& copy) {
      const Range range = piece(number, size, total);
      for (int64_t r = 0; r < n; ++r) {
        const Range part = piece(r, share, range.count);
        if (r != me) copy(r, r * share * width, data + (range.begin + part.begin) * width, part.count * width);
      }
    };
    const auto step = [=, group = group_, keep = Tensors{values}](int64_t k) {
      const int64_t number = k / 2;
      if (k % 2 == 1) {
        const Range range = piece(number, size, total), mine = piece(me, share, range.count);
        char* const own = data + (range.begin + mine.begin) * width;
        std::vector<const void*> sources;
        for (int64_t r = 0; r < n; ++r) sources.push_back(r == me ? own : group->area(r, number) + me * share * width);
        char* const result = group->area(me, number) + me * share * width;
        combination.run(sources, result, mine.count);
        std::memcpy(own, result, static_cast<size_t>(mine.count * width));
        return;
      }
      if (number > 0)
        for_others(number - 1, [&](int64_t r, int64_t offset, char* part, int64_t bytes) {
          std::memcpy(part, group->area(r, number - 1) + offset, static_cast<size_t>(bytes));
        });
      for_others(number, [&](int64_t, int64_t offset, char* part, int64_t bytes) {
        std::memcpy(group->area(me, number) + offset, part, static_cast<size_t>(bytes));
      });
    };
    return start(collective, values, 2 * num_pieces(total, size) + 1, step);
  }

  WorkPointer _allgather_base(at::Tensor& result, at::Tensor& part, const c10d::AllgatherOptions&) override {
    const int64_t size = SharedGroup::kAreaBytes, total = static_cast<int64_t>(part.nbytes()), me = group_->rank();
    char* const to = static_cast<char*>(result.mutable_data_ptr());
    const char* const from = static_cast<const char*>(part.const_data_ptr());
    const Collective collective = described(OpType::_ALLGATHER_BASE, "", part);
    if (shows(part)) {
      const auto step = [=, group = group_, keep = Tensors{result, part}](int64_t k) {
        if (k == 0 && to + me * total != from) std::memcpy(to + me * total, from, static_cast<size_t>(total));
        if (k != 1) return;
        for (int64_t r = 0; r < group->size(); ++r)
          if (r != me) group->read_shown(r, 0, to + r * total, total);
      };
      return start(collective, part, 3, step, from);
    }
    const auto step = [=, group = group_, keep = Tensors{result, part}](int64_t k) {
      if (k == 0 && to + me * total != from) std::memcpy(to + me * total, from, static_cast<size_t>(total));
      if (k > 0) {
        const Range range = piece(k - 1, size, total);
        for (int64_t r = 0; r < group->size(); ++r)
          if (r != me)
            std::memcpy(to + r * total + range.begin, group->area(r, k - 1), static_cast<size_t>(range.count));
      }
      const Range range = piece(k, size, total);
      std::memcpy(group->area(me, k), from + range.begin, static_cast<size_t>(range.count));
    };
    return start(collective, part, num_pieces(total, size) + 1, step);
  }

  WorkPointer _reduce_scatter_base(at::Tensor& part, at::Tensor& values,
                                   const c10d::ReduceScatterOptions& options) override {
    const Combination combination = combination_of(options.reduceOp.op_, values.scalar_type());
    const int64_t n = group_->size(), me = group_->rank(), width = values.element_size(), total = part.numel();
    const int64_t share = SharedGroup::kAreaBytes / (n * width);
    const char* const from = static_cast<const char*>(values.const_data_ptr());
    char* const to = static_cast<char*>(part.mutable_data_ptr());
    const Collective collective = described(OpType::_REDUCE_SCATTER_BASE, combination.name(), values);
    if (shows(values)) {
      const auto step = [=, group = group_, keep = Tensors{part, values}](int64_t k) {
        if (k == 1) combine_shown(*group, combination, from + me * total * width, to, {me * total, total}, width);
      };
      return start(collective, values, 3, step, from);
    }
    const auto step = [=, group = group_, keep = Tensors{part, values}](int64_t k) {
      if (k > 0) {
        const Range range = piece(k - 1, share, total);
        std::vector<const void*> sources;
        for (int64_t r = 0; r < n; ++r)
          sources.push_back(r == me ? from + (me * total + range.begin) * width
                                    : group->area(r, k - 1) + me * share * width);
        // `part` may be the share of `values` itself.
        char* const result = group->area(me, k - 1) + me * share * width;
        combination.run(sources, result, range.count);
        std::memcpy(to + range.begin * width, result, static_cast<size_t>(range.count * width));
      }
      give_shares(*group, from, total * width, share * width, k);
    };
    return start(collective, values, num_pieces(total, share) + 1, step);
  }

  WorkPointer alltoall_base(at::Tensor& result, at::Tensor& values, std::vector<int64_t>& result_sizes,
                            std::vector<int64_t>& value_sizes, const c10d::AllToAllOptions&) override {
    TORCH_CHECK(result_sizes.empty() && value_sizes.empty(), "only equal parts are exchanged");
    const int64_t n = group_->size(), me = group_->rank(), total = static_cast<int64_t>(values.nbytes()) / n;
    const int64_t share = SharedGroup::kAreaBytes / n / 64 * 64;
    const char* const from = static_cast<const char*>(values.const_data_ptr());
    char* const to = static_cast<char*>(result.mutable_data_ptr());
    const auto step = [=, group = group_, keep = Tensors{result, values}](int64_t k) {
      if (k == 0) std::memcpy(to + me * total, from + me * total, static_cast<size_t>(total));
      if (k > 0) {
        const Range range = piece(k - 1, share, total);
        for (int64_t r = 0; r < n; ++r)
          if (r != me)
            std::memcpy(to + r * total + range.begin, group->area(r, k - 1) + me * share,
                        static_cast<size_t>(range.count));
      }
      give_shares(*group, from, total, share, k);
    };
    return start(described(OpType::ALLTOALL_BASE, "", values), values, num_pieces(total, share) + 1, step);
  }

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    const at::Tensor values = the(tensors);
    const int64_t size = SharedGroup::kAreaBytes, total = static_cast<int64_t>(values.nbytes());
    const int64_t root = options.rootRank;
    char* const data = static_cast<char*>(values.mutable_data_ptr());
    const auto step = [=, group = group_, keep = Tensors{values}](int64_t k) {
      const bool gives = group->rank() == root;
      if (!gives && k == 0) return;
      const Range range = piece(gives ? k : k - 1, size, total);
      if (gives)
        std::memcpy(group->area(root, k), data + range.begin, static_cast<size_t>(range.count));
      else
        std::memcpy(data + range.begin, group->area(root, k - 1), static_cast<size_t>(range.count));
    };
    return start(described(OpType::BROADCAST, concat(" from ", root), values), values, num_pieces(total, size) + 1,
                 step);
  }

  WorkPointer barrier(const c10d::BarrierOptions&) override {
    // The second step begins when all have come.
    return start({OpType::BARRIER, "BARRIER"}, at::empty({0}, at::kByte), 2, [](int64_t) {});
  }

  WorkPointer send(Tensors& tensors, int peer, int tag) override {
    const at::Tensor values = the(tensors);
    const std::shared_ptr<const void> memory(std::make_shared<at::Tensor>(values), values.const_data_ptr());
    return work(OpType::SEND, group_->start_send(memory, static_cast<int64_t>(values.nbytes()), peer, tag));
  }

  WorkPointer recv(Tensors& tensors, int peer, int tag) override {
    const at::Tensor values = the(tensors);
    const std::shared_ptr<void> memory(std::make_shared<at::Tensor>(values), values.mutable_data_ptr());
    return work(OpType::RECV, group_->start_receive(memory, static_cast<int64_t>(values.nbytes()), peer, tag));
  }

 private:
  // So few bytes go through an area: reading others takes a step more. In an all-reduce every rank takes all of them
  // and combines them itself, one step less.
  static constexpr size_t kSmallBytes = 32 << 10;
  bool shows(const at::Tensor& values) const {
    return group_->machine().reads_directly() && values.nbytes() > kSmallBytes;
  }

  class Work : public c10d::Work {
   public:
    Work(int rank, OpType type, std::shared_ptr<SharedGroup> group, SharedGroup::Operation operation,
         std::chrono::milliseconds timeout)
        : c10d::Work(rank, type), group_(std::move(group)), operation_(std::move(operation)), timeout_(timeout) {}

    bool isCompleted() override { return group_->machine().is_done(*operation_); }
    bool wait(std::chrono::milliseconds timeout) override {
      group_->machine().wait(*operation_, timeout == kNoTimeout ? timeout_ : timeout);
      return true;
    }

   private:
    std::shared_ptr<SharedGroup> group_;
    SharedGroup::Operation operation_;
    std::chrono::milliseconds timeout_;
  };

  static at::Tensor the(const Tensors& tensors) {
    TORCH_CHECK(tensors.size() == 1, tensors.size(), " tensors in one exchange");
    return tensors[0];
  }

  WorkPointer work(OpType type, SharedGroup::Operation operation) {
    return c10::make_intrusive<Work>(getRank(), type, group_, std::move(operation), timeout_);
  }

  // A collective, and the name that ranks compare: with all that must be the same on all of them but the number of
  // elements.
  struct Collective {
    OpType type;
    std::string name;
  };
  static Collective described(OpType type, const std::string& how, const at::Tensor& values) {
    return {type, concat(c10d::opTypeToString(type), how, " of ", c10::toString(values.scalar_type()))};
  }

  // `step` keeps the tensors whose memory it uses, and the others may read (`shown`): the operation may outlive its
  // Work.
  WorkPointer start(const Collective& collective, const at::Tensor& values, int64_t num_steps,
                    std::function<void(int64_t)> step, const void* shown = nullptr) {
    const auto bytes = static_cast<int64_t>(values.nbytes());
    return work(collective.type, group_->start_steps(collective.name, bytes, num_steps, std::move(step), shown));
  }

  WorkPointer all_reduce_small(const at::Tensor& values, const Combination& combination) {
    const auto bytes = static_cast<size_t>(values.nbytes());
    void* const data = values.mutable_data_ptr();
    const int64_t count = values.numel();
    const auto step = [=, group = group_, keep = Tensors{values}](int64_t k) {
      if (k == 0) {
        std::memcpy(group->area(group->rank(), 0), data, bytes);
        return;
      }
      std::vector<const void*> sources;
      for (int64_t r = 0; r < group->size(); ++r) sources.push_back(group->area(r, 0));
      combination.run(sources, data, count);
    };
    return start(described(OpType::ALLREDUCE, combination.name(), values), values, 2, step);
  }

  std::shared_ptr<SharedGroup> group_;
  std::chrono::milliseconds timeout_;
};

}  // namespace

MachineMeeting meet_on_machine(const c10::intrusive_ptr<c10d::Store>& store, int64_t rank, int64_t size,
                               const BackendOptions& options) {
  const auto key = [](const char* what, int64_t number) { return concat("machine/", what, "/", number); };
  const auto get = [&](const std::string& name) { return store_text(store->get(name)); };
  // The first rank offers the memory, the others try to open it, the first says whether all could.
  SharedMemory memory;
  std::string trouble;
  try {
    if (rank == 0) memory = SharedMemory::create(SharedMachine::bytes_needed(size));
  } catch (const std::runtime_error& error) {
    trouble = error.what();
  }
  if (rank == 0) {
    store->set(key("offer", 0), store_bytes(memory.address()));
    for (int64_t other = 1; other < size && trouble.empty(); ++other) trouble = get(key("answer", other));
    store->set(key("verdict", 0), store_bytes(trouble));
  } else {
    const std::string offer = get(key("offer", 0));
    try {
      if (!offer.empty()) memory = SharedMemory::open(offer);
    } catch (const std::runtime_error& error) {
      trouble = concat("rank ", rank, " ", error.what());
    }
    store->set(key("answer", rank), store_bytes(trouble));
    trouble = get(key("verdict", 0));
  }
  if (!trouble.empty()) return {nullptr, trouble};
  auto machine = std::make_shared<SharedMachine>(std::move(memory), rank, size, options.have_parent);
  // A rank that has not claimed its place looks as if it had ended.
  const int64_t claimed = store->add("machine/claimed", 1);
  if (claimed == size) store->set(key("complete", 0), store_bytes("yes"));
  store->get(key("complete", 0));
  // The same way for all: the last to have tried says which.
  if (options.reads_directly && machine->can_read_others()) store->add("machine/readers", 1);
  if (store->add("machine/tried", 1) == size)
    store->set(key("reads", 0), store_bytes(store->add("machine/readers", 0) == size ? "yes" : "no"));
  if (get(key("reads", 0)) == "yes") machine->read_directly();
  return {std::move(machine), ""};
}

c10::intrusive_ptr<c10d::Backend> make_shared_memory(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const std::shared_ptr<SharedMachine>& machine,
                                                     const std::vector<int64_t>& members, int64_t rank,
                                                     const BackendOptions& options) {
  SharedMemory memory;
  try {
    // The others learn of a failure from the empty address.
    if (rank == 0) {
      try {
        memory = SharedMemory::create(SharedGroup::bytes_needed(static_cast<int64_t>(members.size())));
      } catch (const std::runtime_error&) {
        store->set("memory", store_bytes(""));
        throw;
      }
      store->set("memory", store_bytes(memory.address()));
    } else {
      const std::string address = store_text(store->get("memory"));
      if (address.empty()) throw std::runtime_error(concat("rank ", members[0], " cannot share memory"));
      memory = SharedMemory::open(address);
    }
  } catch (const std::runtime_error& error) {
    throw UserError(concat(error.what(),
                           " (it is address space, taken up as it is used; check for a limit by ulimit -v). "
                           "--distributed-backend gloo does without."));
  }
  return c10::make_intrusive<SharedMemoryBackend>(
      std::make_shared<SharedGroup>(machine, std::move(memory), members, rank), options.timeout);
}

}  // namespace espalier::dist
