#include "apps/engine/parity.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "config/parity_request.h"
#include "dist/local_ranks.h"
#include "families/registry.h"
#include "train/parity.h"

namespace espalier {
namespace {

struct Row {
  plan::Layout layout;
  train::ParityRun run;
  train::ParityComparison comparison;
  bool good = false;
};

constexpr double kSecondsForALayout = 24 * 3600;  // a limit against hanging for good

// `reference`: the first layout's run, if this is another.
train::ParityRun run_layout(const config::ParityRequest& request, const std::string& text,
                            const train::ParityRun* reference, plan::Precision& precision) {
  config::RunConfig config;
  OptionTable table("espalier parity", "");
  Problems problems;
  const plan::Layout layout = config::read_parity_layout(request, text, config, table, problems);
  problems.raise();
  const int64_t num_cores = std::max<int64_t>(1, std::thread::hardware_concurrency());
  if (!table.find("--num-threads")->given())
    config.training.num_threads = std::max<int64_t>(1, num_cores / layout.grid.num_ranks());
  precision = config.training.precision;
  if (reference != nullptr) config.tokenizer.pad_vocab_size_to = reference->padded_vocab_size;
  const auto results =
      dist::run_ranks(layout.grid,
                      [&](const dist::Grid& grid) {
                        set_log_level(grid.rank == 0 ? LogLevel::kWarning : LogLevel::kQuiet);
                        return train::to_text(train::run_for_parity(config, table, request.num_steps, grid));
                      },
                      {.timeout_seconds = kSecondsForALayout, .shared_stages = config::shared_stages(config)});
  return train::parity_run_from_text(results[0]);
}

std::string row_text(const Row& row) {
  const train::ParityComparison& c = row.comparison;
  return format_printf("%-20s %s%c %s%c %12.6f %9.2e %12.6f %9.2e %9.2e %8s %s", to_string(row.layout).c_str(),
                       hex64(row.run.weights_hash).c_str(), c.weights_equal ? ' ' : '!',
                       hex64(row.run.sample_hash).c_str(), c.samples_equal ? ' ' : '!', row.run.losses[0], c.first_loss,
                       row.run.grad_norms[0], c.first_norm, c.largest_loss,
                       row.run.replica_differences.empty() ? "equal" : "DIFFER", row.good ? "ok" : "DIFFERENT");
}

nlohmann::ordered_json to_json(const Row& row) {
  const train::ParityComparison& c = row.comparison;
  return {{"layout", to_string(row.layout)},
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
  std::vector<Row> rows;
  if (!request.json)
    std::printf("%-20s %-17s %-17s %12s %9s %12s %9s %9s %8s\n", "layout", "first weights", "samples", "first loss",
                "differs", "first norm", "differs", "loss<=", "replicas");
  bool all_good = true;
  for (const std::string& text : request.layouts) {
    plan::Precision precision{};
    Row row{.layout = plan::parse_layout(text),
            .run = run_layout(request, text, rows.empty() ? nullptr : &rows[0].run, precision),
            .comparison = {}};
    row.comparison = train::compare(row.run, rows.empty() ? row.run : rows[0].run);
    row.good = train::within(row.comparison, train::parity_tolerance(precision));
    all_good = all_good && row.good;
    if (!request.json) std::printf("%s\n", row_text(row).c_str());
    std::fflush(stdout);
    for (const std::string& difference : row.run.replica_differences) log_warning(text, ": ", difference);
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
