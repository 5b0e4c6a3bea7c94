#include "apps/engine/parity.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "config/parity_request.h"
#include "cuda/cuda.h"
#include "dist/local_ranks.h"
#include "families/registry.h"
#include "train/parity.h"

namespace espalier {
namespace {

// What is run: --layouts on the CPU; with --device cuda the first of them there, and all of them on GPUs.
struct Case {
  std::string layout;
  bool on_gpu;
};

struct Row {
  plan::Layout layout;
  bool on_gpu = false;
  train::ParityRun run;
  train::ParityComparison comparison;
  bool good = false;
};

constexpr double kSecondsForALayout = 24 * 3600;  // a limit against hanging for good

void place_on_gpu(int64_t rank, dist::GridOptions& options) {
  const cuda::Placement compute = cuda::place_process(config::Device::kCuda, rank);
  options.device = compute.device;
  options.make_device_backend = compute.make_nccl;
}

// A rank without a GPU is found before anything is run, in a process of its own.
void check_gpus(const config::ParityRequest& request) {
  int64_t most_ranks = 1;
  for (const std::string& text : request.layouts)
    most_ranks = std::max(most_ranks, plan::parse_layout(text).grid.num_ranks());
  dist::run_ranks({}, [&](const dist::Grid&) {
    cuda::check_attention_backend(request.attention_backend,
                                  cuda::place_process(config::Device::kCuda, most_ranks - 1));
    return std::string();
  });
}

std::vector<Case> cases_of(const config::ParityRequest& request) {
  std::vector<Case> cases;
  if (request.on_gpus) {
    check_gpus(request);
    cases.push_back({request.layouts.at(0), false});
  }
  for (const std::string& layout : request.layouts) cases.push_back({layout, request.on_gpus});
  return cases;
}

// `reference`: the first case's run, if this is another.
train::ParityRun run_case(const config::ParityRequest& request, const Case& asked, const train::ParityRun* reference,
                          plan::Precision& precision) {
  config::RunConfig config;
  OptionTable table("espalier parity", "");
  Problems problems;
  const plan::Layout layout = config::read_parity_layout(request, asked.layout, config, table, problems);
  problems.raise();
  const int64_t num_cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  if (!table.find("--num-threads")->given())
    config.training.num_threads = std::max<int64_t>(1, num_cores / layout.grid.num_ranks());
  precision = config.training.precision;
  if (reference != nullptr) config.tokenizer.pad_vocab_size_to = reference->padded_vocab_size;
  dist::LocalRanksOptions options{.timeout_seconds = kSecondsForALayout,
                                  .shared_stages = config::shared_stages(config)};
  if (asked.on_gpu) options.place = place_on_gpu;
  const auto results = dist::run_ranks(
      layout.grid,
      [&](const dist::Grid& grid) {
        set_log_level(grid.rank == 0 ? LogLevel::kWarning : LogLevel::kQuiet);
        return train::to_text(train::run_for_parity(config, table, request.num_steps, grid));
      },
      options);
  return train::parity_run_from_text(results[0]);
}

std::string name_of(const Row& row) { return to_string(row.layout) + (row.on_gpu ? " cuda" : ""); }

std::string row_text(const Row& row) {
  const train::ParityComparison& c = row.comparison;
  return format_printf("%-20s %s%c %s%c %12.6f %9.2e %12.6f %9.2e %9.2e %8s %s", name_of(row).c_str(),
                       hex64(row.run.weights_hash).c_str(), c.weights_equal ? ' ' : '!',
                       hex64(row.run.sample_hash).c_str(), c.samples_equal ? ' ' : '!', row.run.losses[0], c.first_loss,
                       row.run.grad_norms[0], c.first_norm, c.largest_loss,
                       row.run.replica_differences.empty() ? "equal" : "DIFFER", row.good ? "ok" : "DIFFERENT");
}

nlohmann::ordered_json to_json(const Row& row) {
  const train::ParityComparison& c = row.comparison;
  return {{"layout", to_string(row.layout)},
          {"device", row.on_gpu ? "cuda" : "cpu"},
          {"weights_hash", hex64(row.run.weights_hash)},
          {"sample_hash", hex64(row.run.sample_hash)},
          {"losses", row.run.losses},
          {"grad_norms", row.run.grad_norms},
          {"first_loss_difference", c.first_loss},
          {"first_norm_difference", c.first_norm},
          {"largest_loss_difference", c.largest_loss},
          {"params_norm_difference", c.params_norm},
          {"replica_differences", row.run.replica_differences},
          {"equal", row.good}};
}

}  // namespace

int parity(const std::vector<std::string>& arguments) {
  config::ParityRequest request{.family = families::find_family(arguments.at(0)), .layouts = {}, .arguments = {}};
  ESPALIER_CHECK(request.family != nullptr, "espalier passes the family on, not ", arguments[0]);
  Problems problems;
  if (!config::read_parity_request({arguments.begin() + 1, arguments.end()}, request, problems)) return 0;
  problems.raise();
  const std::vector<Case> cases = cases_of(request);
  std::vector<Row> rows;
  if (!request.json)
    std::printf("%-20s %-17s %-17s %12s %9s %12s %9s %9s %8s\n", "layout", "first weights", "samples", "first loss",
                "differs", "first norm", "differs", "loss<=", "replicas");
  bool all_good = true;
  for (const Case& asked : cases) {
    plan::Precision precision{};
    Row row{.layout = plan::parse_layout(asked.layout),
            .on_gpu = asked.on_gpu,
            .run = run_case(request, asked, rows.empty() ? nullptr : &rows[0].run, precision),
            .comparison = {}};
    row.comparison = train::compare(row.run, rows.empty() ? row.run : rows[0].run);
    row.good = train::within(row.comparison, train::parity_tolerance(precision));
    all_good = all_good && row.good;
    if (!request.json) std::printf("%s\n", row_text(row).c_str());
    std::fflush(stdout);
    for (const std::string& difference : row.run.replica_differences) log_warning(name_of(row), ": ", difference);
    rows.push_back(std::move(row));
  }
  if (request.json) {
    nlohmann::ordered_json json = {{"steps", rows[0].run.losses.size()}, {"equal", all_good}, {"layouts", {}}};
    for (const Row& row : rows) json["layouts"].push_back(to_json(row));
    std::puts(json.dump().c_str());
  } else {
    log_info(rows[0].run.losses.size(), " steps; 'loss<=' is the largest relative difference of the loss in them. ",
             all_good ? "All layouts train the same model." : "Not all layouts train the same model.");
  }
  return all_good ? 0 : 1;
}

}  // namespace espalier
