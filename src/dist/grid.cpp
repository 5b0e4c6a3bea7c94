#include "dist/grid.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "dist/device_watch.h"
#include "dist/watched_backend.h"

namespace espalier::dist {
namespace {

using spec::GridPosition;
using spec::GridShape;

// Whether the host waits for everything that it gives to a device. Neighbours that each post a receipt before they send
// would then wait for each other.
bool launches_block() {
  const char* const value = std::getenv("CUDA_LAUNCH_BLOCKING");
  return value != nullptr && std::string(value) != "" && std::string(value) != "0";
}

// Builds the groups of one process. Every rank walks the same list of kinds of group; ranks of different groups of one
// kind do not wait for each other.
class GroupMaker {
 public:
  GroupMaker(const GridShape& shape, int64_t rank, const c10::intrusive_ptr<c10d::Store>& store,
             const std::shared_ptr<SharedMachine>& machine, const GridOptions& options)
      : shape_(shape),
        rank_(rank),
        position_(spec::position_of(shape, rank)),
        store_(store),
        machine_(machine),
        options_(options) {
    if (options.make_device_backend != nullptr)
      watch_ = std::make_shared<DeviceWatch>(options.device, options.backend.timeout);
  }

  // The group of all ranks that `same` finds on one line with this process.
  template <class Same>
  Group make(const std::string& name, const Same& same) const {
    std::vector<int64_t> ranks;
    for (int64_t other = 0; other < shape_.num_ranks(); ++other)
      if (same(spec::position_of(shape_, other), position_)) ranks.push_back(other);
    const int64_t index = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
    const auto size = static_cast<int64_t>(ranks.size());
    ESPALIER_CHECK(index < size, "rank ", rank_, " is not in its group ", name);
    if (size == 1) return Group(name, ranks, 0, {});
    // Groups of one kind are distinguished by their first rank.
    const auto prefix = c10::make_intrusive<c10d::PrefixStore>(concat(name, "/", ranks[0]), store_);
    return Group(name, ranks, index,
                 machine_ ? make_shared_memory(prefix, machine_, ranks, index, options_.backend)
                          : make_gloo(prefix, index, size, options_.backend),
                 device_backend(name, prefix, index, size));
  }

  // Lines around the ring of stages, both ways: interleaved ones send from the last to the first. All ranks make them
  // in one order, and use each once: a device's communicator exists when all its ranks have, and a first message that
  // waits for that could wait for one that comes after it.
  void add_lines(Group& stages) const {
    if (options_.make_device_backend == nullptr || stages.size() == 1 || launches_block()) return;
    std::map<Line, c10::intrusive_ptr<c10d::Backend>> lines;
    for (const int number : {kForwardLine, kBackwardLine})
      for (int64_t from = 0; from < stages.size(); ++from) {
        const int64_t to = (from + (number == kForwardLine ? 1 : stages.size() - 1)) % stages.size();
        if (stages.rank() != from && stages.rank() != to) continue;
        const std::string name = concat("pipeline, line ", number, " from stage ", from);
        const auto prefix = c10::make_intrusive<c10d::PrefixStore>(concat(name, "/", stages.ranks()[0]), store_);
        auto line = device_backend(name, prefix, stages.rank() == from ? 0 : 1, 2);
        std::vector<at::Tensor> first = {at::zeros({1}, options_.device)};
        line->broadcast(first, c10d::BroadcastOptions{})->wait();
        lines.emplace(Line{from, to, number}, std::move(line));
      }
    stages.set_lines(options_.device, std::move(lines));
  }

 private:
  c10::intrusive_ptr<c10d::Backend> device_backend(const std::string& name,
                                                   const c10::intrusive_ptr<c10d::Store>& store, int64_t rank,
                                                   int64_t size) const {
    if (options_.make_device_backend == nullptr) return {};
    const auto prefix = c10::make_intrusive<c10d::PrefixStore>("device", store);
    return watched(options_.make_device_backend(prefix, rank, size, options_.backend.timeout), name, watch_);
  }

  GridShape shape_;
  int64_t rank_;
  GridPosition position_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<SharedMachine> machine_;  // null: Gloo
  GridOptions options_;
  std::shared_ptr<DeviceWatch> watch_;  // null: the CPU
};

}  // namespace

const Grid& single_process() {
  static const Grid grid;
  return grid;
}

const Group& Grid::shared_by(const std::vector<int64_t>& stages) const {
  for (const Shared& one : shared)
    if (one.stages == stages) return one.group;
  ESPALIER_CHECK(false, "the grid was made without a group of the ", stages.size(), " stages that hold a parameter");
  return world;
}

Grid make_grid(const GridShape& shape, int64_t rank, const GridOptions& options) {
  ESPALIER_CHECK(rank >= 0 && rank < shape.num_ranks(), "rank ", rank, " of ", shape.num_ranks());
  using P = const GridPosition&;
  Grid grid;
  grid.shape = shape;
  grid.position = spec::position_of(shape, rank);
  grid.rank = rank;
  grid.device = options.device;
  if (shape.num_ranks() == 1) return grid;
  MachineMeeting meeting;
  if (options.backend.one_machine && options.backend.shared_memory)
    meeting = meet_on_machine(options.store, rank, shape.num_ranks(), options.backend);
  grid.transport = meeting.machine            ? "shared memory"
                   : !meeting.trouble.empty() ? concat("Gloo (no shared memory: ", meeting.trouble, ")")
                                              : "Gloo";
  const GroupMaker maker(shape, rank, options.store, meeting.machine, options);
  const auto same_replica = [](P a, P b) { return a.context == b.context && a.data == b.data; };
  grid.world = maker.make("world", [](P, P) { return true; });
  grid.tensor = maker.make("tensor", [&](P a, P b) { return same_replica(a, b) && a.pipeline == b.pipeline; });
  grid.context = maker.make(
      "context", [](P a, P b) { return a.tensor == b.tensor && a.data == b.data && a.pipeline == b.pipeline; });
  grid.data = maker.make(
      "data", [](P a, P b) { return a.tensor == b.tensor && a.context == b.context && a.pipeline == b.pipeline; });
  grid.gradient = maker.make("gradient", [](P a, P b) { return a.tensor == b.tensor && a.pipeline == b.pipeline; });
  grid.pipeline = maker.make("pipeline", [&](P a, P b) { return same_replica(a, b) && a.tensor == b.tensor; });
  maker.add_lines(grid.pipeline);
  grid.model = maker.make("model", same_replica);
  grid.shared_stages = options.shared_stages;
  for (const std::vector<int64_t>& stages : options.shared_stages) {
    const auto holds = [&stages](P p) { return std::find(stages.begin(), stages.end(), p.pipeline) != stages.end(); };
    if (!holds(grid.position)) continue;
    std::string name = "shared";
    for (const int64_t stage : stages) name += concat(" ", stage);
    grid.shared.push_back({stages, maker.make(name, [&](P a, P b) {
                             return same_replica(a, b) && a.tensor == b.tensor && holds(a) && holds(b);
                           })});
  }
  return grid;
}

}  // namespace espalier::dist
