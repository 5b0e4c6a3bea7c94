// The processes that run one model together for generate, serve and eval: --tensor-model-parallel-size.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "dist/grid.h"
#include "infer/load_model.h"
#include "launch/environment.h"
#include "launch/peer_watch.h"

namespace espalier {

class EngineRanks {
 public:
  struct Asked {
    int64_t size = 1;
    config::Device device = config::Device::kCpu;
    std::optional<int64_t> num_threads;  // of this process
  };
  // Before any thread starts. Where one process is asked for, this one is alone, whoever started it; else returns when
  // all others are there. `stopped`: whether this process was told to stop. UserError where there are not as many
  // processes, or not what they are to compute on.
  EngineRanks(const std::string& command, const Asked& asked, std::function<bool()> stopped = nullptr);
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
