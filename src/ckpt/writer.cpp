#include "ckpt/writer.h"

#include <sys/resource.h>

#include <chrono>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "ckpt/fill_blocks.h"
#include "ckpt/together.h"

namespace espalier::ckpt {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Room for manifest, headers and a file system's bookkeeping, on top of the tensors.
constexpr int64_t kSlackBytes = int64_t{1} << 20;

// The training threads come first (Linux keeps niceness per thread): the lowest of all, as each time that a writer runs
// in place of one thread of a step, the others wait for that. Where training waits for the writer, it has the
// processor.
void step_back() { ::setpriority(PRIO_PROCESS, 0, 19); }

struct EndOfSource {
  BlockSource& source;
  ~EndOfSource() { source.end(); }
};

}  // namespace

CheckpointWriter::CheckpointWriter(std::filesystem::path run_folder, std::vector<store::ExtraFile> extra_files,
                                   dist::Group group, int64_t block_bytes)
    : run_folder_(std::move(run_folder)),
      extra_files_(std::move(extra_files)),
      group_(std::move(group)),
      block_bytes_(block_bytes) {}

CheckpointWriter::~CheckpointWriter() {
  leaving_ = true;
  try {
    wait();
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
}

void CheckpointWriter::plan_for(const std::vector<TensorToSave>& tensors) {
  const std::string parts = describe_parts(tensors);
  const OwnBytes own_bytes = device_of(tensors).is_cpu() ? OwnBytes::kInPlace : OwnBytes::kInBuffer;
  const bool is_new = parts != plan_.own_parts || own_bytes != plan_.own_bytes;
  if (group_.sum(is_new ? 1.0 : 0.0) > 0)
    plan_ = make_save_plan(group_.gather_texts(parts), group_.rank(), block_bytes_, own_bytes);
}

void CheckpointWriter::reserve(const std::vector<TensorToSave>& tensors) {
  together(group_, [&] { wait(); });
  plan_for(tensors);
  together(group_, [&] { buffer_.grow(plan_.buffer_bytes); });
}

// Rank 0's view of the disk holds for all.
void CheckpointWriter::begin(int64_t step) {
  if (const std::error_code error = create_folders(run_folder_))
    throw UserError(concat("cannot create '", run_folder_.string(), "': ", error.message()), ExitCode::kCannotCreate);
  int64_t extra_bytes = kSlackBytes;
  for (const store::ExtraFile& extra : extra_files_) extra_bytes += static_cast<int64_t>(extra.content.size());
  store::begin_step(run_folder_, step, plan_.checkpoint_bytes() + extra_bytes);
}

void CheckpointWriter::save(const store::Manifest& manifest, std::vector<TensorToSave> tensors) {
  const Clock::time_point start = Clock::now();
  together(group_, [&] { wait(); });
  plan_for(tensors);
  together(group_, [&] { buffer_.grow(plan_.buffer_bytes); });
  together(group_, [&] {
    if (group_.rank() == 0) begin(manifest.state.step);
  });
  fill_blocks(plan_, tensors, buffer_.data(), group_);
  source_ = std::make_shared<BlockSource>(plan_, std::move(tensors), buffer_.data());
  write_behind(manifest, seconds_since(start));
}

void CheckpointWriter::write_behind(const store::Manifest& manifest, double stall_seconds) {
  store::StepContent content{.manifest = manifest, .tensors = plan_.tensors, .blocks = {}, .extra_files = extra_files_};
  content.read_back = read_back_;
  for (const BlockToWrite& block : plan_.blocks)
    content.blocks.push_back({.tensor = block.tensor, .offset = block.offset, .bytes = block.bytes});
  content.make = [source = source_.get()](size_t tensor, int64_t offset, int64_t bytes, void* to) {
    source->take(tensor, offset, bytes, to);
  };
  SaveReport report{.step = manifest.state.step,
                    .bytes = plan_.checkpoint_bytes(),
                    .written_bytes = plan_.written_bytes(),
                    .given_bytes = plan_.given_bytes(),
                    .stall_seconds = stall_seconds};
  const store::Writers writers{.rank = group_.rank(), .count = group_.size(), .leaving = &leaving_};
  pending_ =
      std::async(std::launch::async, [this, content = std::move(content), source = source_, report, writers]() mutable {
        step_back();
        const Clock::time_point start = Clock::now();
        const EndOfSource end{*source};  // also of a write that fails: the change then waits for nothing
        store::write_step(run_folder_, content, writers);
        report.write_seconds = seconds_since(start);
        return report;
      });
}

void CheckpointWriter::before_change() {
  if (!pending_.valid()) source_.reset();  // nobody writes
  if (source_ == nullptr) return;
  const Clock::time_point start = Clock::now();
  source_->before_change();
  change_seconds_ += seconds_since(start);
}

void CheckpointWriter::wait() {
  if (!pending_.valid()) return;
  pending_.wait();
  source_.reset();
  const double change_seconds = std::exchange(change_seconds_, 0);
  report_ = pending_.get();  // leaves it invalid, also when it throws
  report_->stall_seconds += change_seconds;
}

void CheckpointWriter::check() {
  if (pending_.valid() && pending_.wait_for(std::chrono::seconds(0)) == std::future_status::ready) wait();
}

std::optional<SaveReport> CheckpointWriter::take_report() {
  check();
  return std::exchange(report_, std::nullopt);
}

}  // namespace espalier::ckpt
