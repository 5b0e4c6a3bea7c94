#include "train/replay.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/format.h"
#include "base/log.h"
#include "data/sample_pieces.h"
#include "report/metrics_file.h"
#include "train/job.h"

namespace espalier::train {
namespace {

using OrderedJson = nlohmann::ordered_json;

// What the clock decides, and what is not a figure of the step.
constexpr std::array<std::string_view, 4> kOfTheClock = {"step_seconds", "tokens_per_second", "tflops",
                                                         "hardware_tflops"};

// Passes over the next step where the run did.
bool pass_over(Job& job) {
  const int64_t next = job.trainer().position().step + 1;
  for (const config::StepRange& range : job.config().training.skipped_steps)
    if (range.first <= next && next <= range.last) {
      job.trainer().skip_step();
      return true;
    }
  return false;
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

void compare_tensors(Job& job, const std::filesystem::path& folder, ReplayedStep& result) {
  ckpt::LoadedCheckpoint checkpoint(folder);
  for (const ckpt::TensorToSave& tensor : tensors_to_save(job.state())) {
    const ckpt::TensorPart part = ckpt::part_of(tensor.name, tensor.value, tensor.part);
    if (part.extents.empty()) continue;
    ++result.num_tensors;
    if (!checkpoint.has(tensor.name) || !same_bytes(tensor.value.to(at::kCPU).contiguous().view({-1}),
                                                    checkpoint.read(tensor.name, part.extents).contiguous()))
      result.different.push_back(tensor.name);
  }
}

std::vector<std::string> documents_of(const Job& job, std::vector<Observation> seen) {
  sort(seen);
  for (const Observation& one : seen) {
    const auto bad = bad_token(one, job.config().data.sequence_length);
    if (!bad) continue;
    std::vector<std::string> lines;
    for (const data::SamplePiece& piece : job.train_loader().pieces(bad->sample))
      lines.push_back(
          concat(data::describe(piece), holds(job.train_loader().source(), piece, *bad) ? "  <- the token" : ""));
    return lines;
  }
  return {};
}

}  // namespace

ReplayedStep run_for_replay(const config::RunConfig& config, const OptionTable& table, const ReplayRequest& request,
                            const dist::Grid& grid) {
  Job job(config, table, grid);
  ReplayedStep result;
  while (job.trainer().position().step < request.step - 1) {
    if (pass_over(job)) continue;
    const report::StepReport report = job.trainer().step();
    result.records.push_back(report::step_record(report));
    log_info("step ", report.step, ": ", report.losses.empty() ? "no loss" : format_shortest(report.losses[0].value));
  }
  if (!pass_over(job)) {
    Recorder recorder(job);
    result.records.push_back(report::step_record(job.trainer().step()));
    result.observations = recorder.take();
  }
  result.bad_documents = documents_of(job, result.observations);
  if (!request.checkpoint_after.empty()) compare_tensors(job, request.checkpoint_after, result);
  grid.world.barrier();
  return result;
}

std::string to_text(const ReplayedStep& step) {
  OrderedJson json = {{"records", step.records},
                      {"observations", OrderedJson::array()},
                      {"different", step.different},
                      {"num_tensors", step.num_tensors},
                      {"bad_documents", step.bad_documents}};
  for (const Observation& one : step.observations) json["observations"].push_back(to_json(one));
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

ReplayedStep replayed_from_text(const std::string& text) {
  const OrderedJson json = OrderedJson::parse(text);
  ReplayedStep step{.records = json.at("records"),
                    .observations = {},
                    .different = json.at("different"),
                    .num_tensors = json.at("num_tensors"),
                    .bad_documents = json.at("bad_documents")};
  for (const OrderedJson& line : json.at("observations"))
    step.observations.push_back(observation_from_json(line.get<std::string>(), "a rank of this replay"));
  return step;
}

std::vector<std::string> record_differences(const std::string& replayed, const std::string& recorded) {
  const OrderedJson here = OrderedJson::parse(replayed), there = OrderedJson::parse(recorded);
  std::vector<std::string> differences;
  const auto value = [](const OrderedJson& record, const std::string& key) {
    return record.contains(key) ? record.at(key).dump() : std::string("nothing");
  };
  std::vector<std::string> keys;
  for (const auto& [key, unused] : here.items()) keys.push_back(key);
  for (const auto& [key, unused] : there.items())
    if (!here.contains(key)) keys.push_back(key);
  for (const std::string& key : keys) {
    if (std::find(kOfTheClock.begin(), kOfTheClock.end(), key) != kOfTheClock.end()) continue;
    if (value(here, key) != value(there, key))
      differences.push_back(concat("step ", value(here, "step"), ": ", key, " ", value(here, key), " replayed, ",
                                   value(there, key), " recorded"));
  }
  return differences;
}

double record_distance(const std::string& replayed, const std::string& recorded) {
  const OrderedJson here = OrderedJson::parse(replayed), there = OrderedJson::parse(recorded);
  double distance = 0;
  for (const auto& [key, value] : here.items()) {
    if (key != "grad_norm" && !key.ends_with("loss")) continue;
    const bool numbers = value.is_number() && there.contains(key) && there.at(key).is_number();
    if (!numbers) {
      if (!there.contains(key) || there.at(key) != value) distance = INFINITY;
      continue;
    }
    const double a = value, b = there.at(key);
    if (a != b) distance = std::max(distance, std::abs(a - b) / std::max(std::abs(a), std::abs(b)));
  }
  return distance;
}

}  // namespace espalier::train
