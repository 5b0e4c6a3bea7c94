#include "train/step_trace.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <map>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "train/device_timer.h"
#include "train/step_profile.h"

namespace espalier::train {
namespace profiler = torch::autograd::profiler;
namespace {

std::set<torch::profiler::impl::ActivityType> activities(c10::Device device) {
  using torch::profiler::impl::ActivityType;
  if (device.is_cuda()) return {ActivityType::CPU, ActivityType::CUDA};
  return {ActivityType::CPU};
}

class SpansOfTrace : public WorkProfile::Listener {
 public:
  void begin(const std::string& name) override {
    open_here().push_back(std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE));
    open_here().back()->before(name);
  }
  void end() override { open_here().pop_back(); }

 private:
  using Open = std::vector<std::unique_ptr<at::RecordFunction>>;
  Open& open_here() { return open_[std::this_thread::get_id()]; }
  std::map<std::thread::id, Open> open_;
};

}  // namespace

StepTrace::~StepTrace() {
  if (recording_) profiler::disableProfiler();
}

void StepTrace::start(c10::Device device) {
  ESPALIER_CHECK(!recording_, "a trace is being recorded");
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities(device));
  profiler::enableProfiler(
      config, activities(device),
      {at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE, at::RecordScope::BACKWARD_FUNCTION});
  recording_ = true;
}

void StepTrace::write(const std::filesystem::path& path) {
  ESPALIER_CHECK(recording_, "no trace is being recorded");
  recording_ = false;
  std::filesystem::create_directories(path.parent_path());
  profiler::disableProfiler()->save(path.string());
  if (!std::filesystem::exists(path))
    throw UserError(concat("cannot write the trace '", path.string(), "'"), ExitCode::kCannotCreate);
}

Tracing::Tracing(const config::RunConfig& config, const dist::Grid& grid)
    : config_(config),
      grid_(grid),
      spans_(std::make_unique<SpansOfTrace>()),
      timer_(grid.device.is_cpu() ? nullptr : std::make_unique<DeviceTimer>(grid.device)),
      profile_(spans_.get(), timer_.get()) {}
Tracing::~Tracing() = default;

void Tracing::before_step(int64_t step) {
  if (!config_.training.profile_step_start || step != *config_.training.profile_step_start + 1) return;
  trace_.start(grid_.device);
  profile_.start();
}

void Tracing::after_step(const report::StepReport& report) {
  const int64_t step = report.step;
  if (!trace_.recording() || step < config_.training.profile_step_end.value_or(step)) return;
  profile_.stop();
  const ProfiledSteps steps{profile_, *config_.training.profile_step_start + 1, step};
  log_info(profile_table(steps));
  const std::filesystem::path folder = config_.checkpoint.save.empty() ? "." : config_.checkpoint.save;
  const std::string rank = grid_.world.size() > 1 ? concat("_rank_", grid_.rank) : "";
  const std::filesystem::path path = folder / "logs" / concat("trace_step_", step, rank, ".json");
  try {
    trace_.write(path);
    write_file_atomically(folder / "logs" / concat("profile_step_", step, rank, ".json"),
                          profile_json(steps).dump(1) + "\n");
  } catch (const std::exception& error) {  // a full disk; the run needs no trace
    return log_warning("no trace of step ", step, ": ", error.what());
  }
  log_info("wrote ", path.string(), ": open it at ui.perfetto.dev or in chrome://tracing");
}

}  // namespace espalier::train
