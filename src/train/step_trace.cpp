#include "train/step_trace.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include "base/error.h"

namespace espalier::train {
namespace profiler = torch::autograd::profiler;
namespace {
const std::set<torch::profiler::impl::ActivityType> kActivities = {torch::profiler::impl::ActivityType::CPU};
}

StepTrace::~StepTrace() {
  if (recording_) profiler::disableProfiler();
}

void StepTrace::start() {
  ESPALIER_CHECK(!recording_, "a trace is being recorded");
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  profiler::prepareProfiler(config, kActivities);
  profiler::enableProfiler(
      config, kActivities,
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

}  // namespace espalier::train
