// espalier-engine: the commands that need tensors. `espalier` checks their arguments and becomes this program.
#include <c10/util/Exception.h>

#include <string>
#include <vector>

#include "apps/engine/compare_hf.h"
#include "apps/engine/generate.h"
#include "apps/engine/index.h"
#include "apps/engine/parity.h"
#include "apps/engine/probe.h"
#include "apps/engine/replay.h"
#include "apps/engine/score.h"
#include "apps/engine/serve.h"
#include "apps/engine/train.h"
#include "apps/run_main.h"
#include "base/error.h"
#include "base/whereabouts.h"
#include "cuda/cuda.h"
#include "kernels/wide_product.h"
#include "launch/hold.h"
#include "launch/snapshot_memory.h"
#include "tensor/cpu_allocator.h"

namespace espalier {
namespace {

using Words = std::vector<std::string>;

struct EngineCommand {
  const char* name;
  int (*run)(const Words& arguments);
  cuda::Purpose purpose = cuda::Purpose::kUse;
};

constexpr EngineCommand kCommands[] = {
    {"train", train_rank, cuda::Purpose::kTraining},
    {"parity", parity, cuda::Purpose::kTraining},
    {"generate", generate},
    {"compare-hf", compare_hf},
    {"probe", probe},
    {"score", score},
    {"serve", serve_model},
    {"replay", replay, cuda::Purpose::kTraining},
    {"index-embed", index_embed},
    {"index-search", index_search},
    {"index-evaluate", index_evaluate},
};

int dispatch(const Words& words) {
  for (const EngineCommand& command : kCommands) {
    if (words.empty() || words[0] != command.name) continue;
    try {
      return command.run({words.begin() + 1, words.end()});
    } catch (const c10::OutOfMemoryError& error) {
      throw cuda::out_of_memory(error.what_without_backtrace(), command.purpose);
    }
  }
  throw UserError("espalier-engine is started by espalier; use `espalier help`", ExitCode::kUsage);
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  return espalier::run_main([&] {
    espalier::open_whereabouts();
    espalier::launch::open_snapshot_memory();
    espalier::launch::open_hold();
    espalier::tensor::install_cpu_allocator();
    espalier::kernels::make_library_products_repeatable();
    return espalier::dispatch({argv + 1, argv + argc});
  });
}
