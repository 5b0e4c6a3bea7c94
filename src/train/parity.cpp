#include "train/parity.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "dist/replicas.h"
#include "spec/shard.h"
#include "train/job.h"
#include "train/replica_check.h"

namespace espalier::train {
namespace {

using Json = nlohmann::json;

// splitmix64's finaliser: spreads every bit over all.
uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Sum of one number per element, made from its parameter's name, global index and bits. A sum does not depend on who
// holds what.
uint64_t hash_of(const dist::OwnedPiece& piece, const spec::TensorShard& shard) {
  const spec::ParamSpec& spec = *piece.param->spec;
  const uint64_t key = hash64(spec.name);
  const at::Tensor values = piece.value.to(at::kFloat).cpu().contiguous();
  const auto* bits = static_cast<const uint32_t*>(values.const_data_ptr());
  uint64_t sum = 0;
  for (const spec::Extent& extent : spec::clip_to_local(spec::local_extents(spec, shard), piece.begin, piece.end))
    for (int64_t i = 0; i < extent.count; ++i)
      sum += mix(key + mix(static_cast<uint64_t>(extent.global_begin + i)) + bits[extent.local_begin + i]);
  return sum;
}

uint64_t global_hash(Job& job, const dist::Grid& grid) {
  uint64_t sum = 0;
  for (const dist::OwnedPiece& piece : job.reducer().pieces()) {
    const spec::ParamSpec& spec = *piece.param->spec;
    const bool replicated = spec.tensor_placement.kind == spec::Placement::Kind::kReplicated;
    if (!spec.is_copy && (!replicated || grid.position.tensor == 0)) sum += hash_of(piece, job.params().shard());
  }
  const at::Tensor total = at::full({1}, static_cast<int64_t>(sum), at::kLong);
  if (job.reducer().is_sharded()) grid.gradient.all_reduce(total);
  grid.model.all_reduce(total);
  return static_cast<uint64_t>(total.item<int64_t>());
}

double relative(double a, double b) { return a == b ? 0 : std::abs(a - b) / std::abs(b); }

}  // namespace

ParityRun run_for_parity(const config::RunConfig& config, const OptionTable& table, int64_t num_steps,
                         const dist::Grid& grid) {
  Job job(config, table, grid);
  ParityRun run;
  run.padded_vocab_size = job.config().vocabulary.padded_size;
  run.weights_hash = global_hash(job, grid);
  const int64_t last = std::min(num_steps, job.config().training.num_steps);
  while (job.trainer().position().step < last) {
    const report::StepReport report = job.trainer().step();
    run.sample_hash += mix(report.sample_hash + static_cast<uint64_t>(report.step));
    double loss = 0;
    for (const report::NamedLoss& term : report.losses) loss += term.is_measure ? 0 : term.value;
    run.losses.push_back(loss);
    run.grad_norms.push_back(report.grad_norm.value_or(0));
  }
  run.params_norm = job.optimizer().params_norm();
  run.replica_differences = dist::describe(dist::find_differences(replicated_state(job), grid));
  return run;
}

std::string to_text(const ParityRun& run) {
  return Json{{"padded_vocab_size", run.padded_vocab_size},
              {"weights_hash", run.weights_hash},
              {"sample_hash", run.sample_hash},
              {"losses", run.losses},
              {"grad_norms", run.grad_norms},
              {"params_norm", run.params_norm},
              {"replica_differences", run.replica_differences}}
      .dump();
}

ParityRun parity_run_from_text(const std::string& text) {
  const Json json = Json::parse(text);
  return {.padded_vocab_size = json.at("padded_vocab_size"),
          .weights_hash = json.at("weights_hash"),
          .sample_hash = json.at("sample_hash"),
          .losses = json.at("losses"),
          .grad_norms = json.at("grad_norms"),
          .params_norm = json.at("params_norm"),
          .replica_differences = json.at("replica_differences")};
}

ParityComparison compare(const ParityRun& run, const ParityRun& reference) {
  ParityComparison comparison{.weights_equal = run.weights_hash == reference.weights_hash,
                              .samples_equal = run.sample_hash == reference.sample_hash,
                              .num_replica_differences = run.replica_differences.size()};
  ESPALIER_CHECK(run.losses.size() == reference.losses.size() && !run.losses.empty(), run.losses.size(),
                 " steps beside ", reference.losses.size());
  comparison.first_loss = relative(run.losses[0], reference.losses[0]);
  comparison.first_norm = relative(run.grad_norms[0], reference.grad_norms[0]);
  for (size_t step = 0; step < run.losses.size(); ++step) {
    const double difference = relative(run.losses[step], reference.losses[step]);
    // Not std::max: a loss that is not a number must show.
    if (!(difference <= comparison.largest_loss)) comparison.largest_loss = difference;
  }
  comparison.params_norm = relative(run.params_norm, reference.params_norm);
  return comparison;
}

ParityTolerance parity_tolerance(plan::Precision precision) {
  if (precision == plan::Precision::kFp32) return {};
  const double any = std::numeric_limits<double>::infinity();
  return {any, any, any};
}

bool within(const ParityComparison& comparison, const ParityTolerance& tolerance) {
  return comparison.weights_equal && comparison.samples_equal && comparison.num_replica_differences == 0 &&
         comparison.first_loss <= tolerance.first_loss && comparison.first_norm <= tolerance.first_norm &&
         comparison.largest_loss <= tolerance.curve;
}

}  // namespace espalier::train
