// Checkpoints of runs whose disk is so slow that training has gone on before anything is written: each holds, bit for
// bit, the state that there was when its save began. What changes the state without Job::before_change() fails here.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ATen/ATen.h>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "ckpt/loader.h"
#include "dist/local_ranks.h"
#include "plan/layout.h"
#include "store/run_folder.h"
#include "tests/e2e/run_fixture.h"
#include "train/replica_check.h"
#include "train/run.h"

namespace espalier::test {
namespace saves_test {

// Holds up the writing of checkpoints in this process until it is told that they may be written.
class SlowDisk {
 public:
  // Of step `last` nobody tells it: that is written after a moment, in the midst of the evaluation that follows.
  void begin(int64_t last) { last_ = last, written_up_to_ = 0, num_held_up_ = 0, too_slow_ = 0; }
  void may_write(int64_t step) { written_up_to_ = step; }
  int64_t num_held_up() const { return num_held_up_; }
  // Checkpoints for which nobody came to tell.
  int64_t num_given_up() const { return too_slow_; }

  // Before a file gets its room: nothing of its tensors has been read by then.
  void wait(const std::string& path) {
    const size_t at = path.find("/step_");
    if (last_ == 0 || at == std::string::npos) return;
    const int64_t step = std::stoll(path.substr(at + 6));
    const auto patience = step == last_ ? std::chrono::milliseconds(30) : std::chrono::seconds(30);
    const auto start = std::chrono::steady_clock::now();
    if (written_up_to_ < step) ++num_held_up_;
    while (written_up_to_ < step) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (std::chrono::steady_clock::now() - start < patience) continue;
      too_slow_ += step == last_ ? 0 : 1;
      written_up_to_ = step;
    }
  }

 private:
  std::atomic<int64_t> last_ = 0, written_up_to_ = 0, num_held_up_ = 0, too_slow_ = 0;
};

SlowDisk& slow_disk() {
  static SlowDisk disk;
  return disk;
}

// Notes the state of each save, and compares it with what is in the checkpoints at the end.
class SavedStates : public train::Observer {
 public:
  using AfterStep = std::function<void(train::Job& job, int64_t step)>;
  SavedStates(train::Job& job, AfterStep after_step, std::string& problems)
      : job_(job), after_step_(std::move(after_step)), problems_(problems) {}

  void after_step(const report::StepReport& report) override {
    if (after_step_) after_step_(job_, report.step);
  }
  // The last observer to hear of it: as the state is now it is saved.
  void before_save() override {
    const int64_t step = job_.trainer().position().step;
    slow_disk().may_write(step - 1);
    if (states_.count(step) > 0) return;
    std::vector<ckpt::TensorToSave> state = train::tensors_to_save(job_.state());
    for (ckpt::TensorToSave& tensor : state) tensor.value = tensor.value.clone();
    states_[step] = std::move(state);
  }
  void at_end() override {
    for (const auto& [step, state] : states_) compare(step, state);
  }

 private:
  void compare(int64_t step, const std::vector<ckpt::TensorToSave>& state) {
    ckpt::LoadedCheckpoint checkpoint(std::filesystem::path(job_.config().checkpoint.save) /
                                      store::step_folder_name(step));
    std::vector<ckpt::TensorRequest> requests;
    for (const ckpt::TensorToSave& tensor : state)
      requests.push_back({tensor.name, at::empty_like(tensor.value), tensor.part});
    checkpoint.load(requests, ckpt::LoadedCheckpoint::Part::kSome);
    for (size_t at = 0; at < state.size(); ++at) {
      const at::Tensor &saved = requests[at].destination, &was = state[at].value;
      if (was.nbytes() > 0 && std::memcmp(saved.const_data_ptr(), was.const_data_ptr(), was.nbytes()) != 0)
        problems_ += concat("step ", step, " holds another ", state[at].name, "\n");
    }
  }

  train::Job& job_;
  const AfterStep after_step_;
  std::string& problems_;
  std::map<int64_t, std::vector<ckpt::TensorToSave>> states_;
};

struct SaveCase {
  const char* name;
  const char* layout;
  const char* flags;
  SavedStates::AfterStep after_step = {};
};
void PrintTo(const SaveCase& value, std::ostream* out) { *out << value.name; }

// After the save at step 4 and the update of step 5.
void damage_rank_1(train::Job& job, int64_t step) {
  if (step != 5 || job.grid().rank != 1) return;
  for (const dist::Copy& copy : train::replicated_state(job))
    if (copy.name.ends_with("dense_h_to_4h.weight")) {
      static_cast<uint8_t*>(copy.values.mutable_data_ptr())[8] ^= 1;
      return;
    }
}

std::vector<SaveCase> cases() {
  const char* const ema = "--bf16 --ema 0.75 --eval-ema --eval-interval 5 --eval-iters 40";
  return {
      {"adam_bf16", "tp1", "--bf16"},
      {"adam_fp32", "tp1", ""},
      {"adam_fp16_that_skips_steps", "tp1", "--fp16 --initial-loss-scale 1048576 --hysteresis 1"},
      {"replicas", "dp2", "--bf16"},
      {"replicas_fp32", "dp2", ""},
      {"zero1", "dp2zero1", "--bf16"},
      {"zero1_fp32", "dp2zero1", ""},
      {"zero2", "dp2zero2", "--bf16"},
      {"zero3", "dp2zero3", "--bf16"},
      {"tensor", "tp2", "--bf16"},
      {"sequence_fp32", "tp2sp", ""},
      {"pipeline", "pp2", "--bf16"},
      {"context", "cp2", "--bf16"},
      {"many", "tp2pp2dp2zero1", "--bf16"},
      {"repair", "dp2", "--check-replicas 1 --check-replicas-policy repair", damage_rank_1},
      {"muon", "tp1", "--bf16 --optimizer muon --lr 1e-3"},
      {"muon_of_replicas", "dp2zero1", "--optimizer muon --lr 1e-3"},
      {"muonclip", "tp2", "--bf16 --optimizer muonclip --qk-clip-threshold 0.02 --lr 1e-3"},
      {"lamb", "dp2zero1", "--optimizer lamb --lr 1e-3"},
      {"schedule_free_bf16", "dp2zero1",
       "--bf16 --optimizer adamwschedulefree --lr-decay-style constant --eval-iters 40"},
      {"schedule_free_fp32", "tp1",
       "--optimizer adamwschedulefree --lr-decay-style constant --eval-interval 5 --eval-iters 40"},
      {"sophia", "tp1", "--bf16 --optimizer sophiag --sophiag-update-interval 2"},
      {"sophia_of_replicas", "dp2zero1", "--optimizer sophiag --sophiag-update-interval 1"},
      {"fp8_moments", "dp2zero1", "--bf16 --optimizer adam8bit --hidden-size 64"},
      {"bf16_moments", "tp1", "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"},
      {"ema_evaluated", "tp1", ema},
      {"ema_evaluated_fp32", "tp1", "--ema 0.75 --eval-ema --eval-interval 5 --eval-iters 40"},
      {"ema_evaluated_zero1", "dp2zero1", ema},
      {"ema_evaluated_zero1_fp32", "dp2zero1", "--ema 0.75 --eval-ema --eval-iters 40"},
  };
}

class Saves : public ::testing::TestWithParam<SaveCase> {
 protected:
  Saves() { write_token_files(folder_ / "data", 300, 11); }
  TemporaryFolder folder_;
};

// Saves after steps 4 and 6 of 6: two updates overtake the first, the evaluation at the end the second.
TEST_P(Saves, HoldTheStateOfTheirStepWhateverOvertakesThem) {
  const plan::Layout layout = plan::parse_layout(GetParam().layout);
  const Words words =
      tiny_run(folder_ / "data") +
      split_blanks(
          "--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32"
          " --make-vocab-size-divisible-by 1 --pad-vocab-size-to 5003 --micro-batch-size 1 --num-threads 1"
          " --global-batch-size 8 --train-samples 48 --lr-decay-samples 48 --log-level error --save-interval 4") +
      split_blanks(GetParam().flags) + plan::layout_flags(layout, 4) + Words{"--save", folder_ / "run"};
  const auto found = dist::run_ranks(layout.grid, [&](const dist::Grid& grid) {
    std::string problems;
    slow_disk().begin(/*last=*/6);
    ParsedRun run(words, grid);
    set_log_level(LogLevel::kQuiet);
    train::run(run.config, run.table, join(words, " "), grid,
               [&](train::Job& job) { return std::make_unique<SavedStates>(job, GetParam().after_step, problems); });
    if (slow_disk().num_held_up() == 0) problems += "nothing was held up\n";
    if (slow_disk().num_given_up() > 0) problems += "training has waited for the disk\n";
    return problems;
  });
  for (size_t rank = 0; rank < found.size(); ++rank) EXPECT_EQ(found[rank], "") << "rank " << rank;
  EXPECT_EQ(saved_steps(folder_ / "run"), (std::vector<int64_t>{4, 6}));
}

INSTANTIATE_TEST_SUITE_P(, Saves, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace saves_test
}  // namespace espalier::test

// Stands in for the C library's.
extern "C" int fallocate(int file, int mode, off_t offset, off_t bytes) {
  std::error_code ignored;
  espalier::test::saves_test::slow_disk().wait(
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file), ignored).string());
  return static_cast<int>(::syscall(SYS_fallocate, file, mode, offset, bytes));
}
