// A training job on this process: everything from tokenizer to optimizer, built from the options and, when there is
// one, a checkpoint.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "ckpt/writer.h"
#include "data/gpt_dataset.h"
#include "models/gpt/model.h"
#include "plan/run_config.h"
#include "store/run_folder.h"
#include "text/tokenizer.h"
#include "train/job_state.h"
#include "train/loader.h"
#include "train/trainer.h"

namespace espalier::train {

class Job {
 public:
  // `config` is resolved; `table` is the one that filled it. Takes the lock of --save, finds and checks the checkpoint
  // of
  // --load, opens the data, builds the model, and loads or draws its parameters.
  Job(const plan::RunConfig& config, const OptionTable& table);
  ~Job();

  const plan::RunConfig& config() const { return config_; }
  Trainer& trainer() { return *trainer_; }
  models::GptModel& model() { return *model_; }
  const data::GptDataSets& data_sets() const { return data_; }
  const std::vector<Loader>& valid_loaders() const { return valid_; }
  const std::vector<Loader>& test_loaders() const { return test_; }

  // Starts a save of the present state; it goes on behind training. Does nothing without --save.
  void save();
  // Ends the save in progress.
  void finish_saving();
  // Reports a save that has ended behind training, and its failure.
  void check_saving();

 private:
  void find_checkpoint(const OptionTable& table);
  void check_options(const OptionTable& table, const store::Manifest& manifest);
  void open_data();
  void build_model();
  void load_or_initialize();
  void prepare_save_folder();
  void report_save(const ckpt::SaveReport& report);
  JobState state();

  plan::RunConfig config_;
  std::string resolved_options_;  // config.toml
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::optional<store::RunLock> lock_;
  std::optional<store::StepEntry> loaded_;            // the checkpoint that this run began from
  std::optional<ckpt::LoadedCheckpoint> checkpoint_;  // while it is being read
  data::GptDataSets data_;
  std::vector<Loader> train_, valid_, test_;  // train_ holds one
  std::unique_ptr<tensor::ParamSet> params_;
  std::unique_ptr<models::GptModel> model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<optim::LrSchedule> lr_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<ckpt::CheckpointWriter> writer_;
  std::optional<int64_t> saved_step_;
};

// Names the order of samples by content: a hash of some of the samples before and behind position `consumed`. Moving
// the files or running longer leaves it as it is; other data, another seed or blend do not.
std::string order_fingerprint(const data::GptDataset& dataset, int64_t consumed);

}  // namespace espalier::train
