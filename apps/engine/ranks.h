// The processes that run one model together for generate, serve and eval: --tensor-model-parallel-size.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dist/grid.h"
#include "infer/load_model.h"
#include "launch/environment.h"
#include "launch/peer_watch.h"

namespace espalier {

class EngineRanks {
 public:
  // Before any thread starts. Where `size` is 1 this process is alone, whoever started it; else returns when all others
  // are there. `num_threads`: of this process, as it was asked for. `stopped`: whether this process was told to stop.
  // UserError where there are not `size` processes.
  EngineRanks(const std::string& command, int64_t size, std::optional<int64_t> num_threads,
              std::function<bool()> stopped = nullptr);
  EngineRanks(const EngineRanks&) = delete;
  EngineRanks& operator=(const EngineRanks&) = delete;

  const dist::Grid& grid() const { return grid_; }
  // UserError where there are others: `what` runs in one process.
  void check_alone(const std::string& what) const;

  // Of the first process: it leads the others from now on, where there are others. Else this process follows until the
  // first lets it go: false.
  bool lead(infer::LoadedModel& loaded);
  // Null where there is one process.
  const infer::Leader* leader() const { return leader_ ? &*leader_ : nullptr; }

 private:
  std::function<bool()> stopped_;
  std::optional<launch::PeerWatch> watch_;
  dist::Grid grid_;
  std::optional<infer::Leader> leader_;
};

}  // namespace espalier
