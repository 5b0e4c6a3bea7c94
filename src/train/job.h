// A training job on this process: everything from tokenizer to optimizer, built from the options and, when there is
// one, a checkpoint. All ranks of the grid build theirs together and call its methods alike.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "ckpt/snapshots.h"
#include "ckpt/writer.h"
#include "config/run_config.h"
#include "models/data.h"
#include "pipeline/stage.h"
#include "store/run_folder.h"
#include "text/tokenizer.h"
#include "train/evaluate.h"
#include "train/held_folder.h"
#include "train/job_state.h"
#include "train/loader.h"
#include "train/trainer.h"

namespace espalier::train {

class Job {
 public:
  // `config` is resolved; `table` is the one that filled it; `grid` outlives the job. Takes the lock of --save (rank
  // 0), finds and checks the checkpoint of --load, opens the data, builds the model, and loads or draws its parameters.
  Job(const config::RunConfig& config, const OptionTable& table, const dist::Grid& grid);
  ~Job();

  const config::RunConfig& config() const { return config_; }
  Trainer& trainer() { return *trainer_; }
  const Trainer& trainer() const { return *trainer_; }
  pipeline::Runner& runner() { return *runner_; }
  dist::GradReducer& reducer() { return *reducer_; }
  const dist::Grid& grid() const { return grid_; }
  tensor::ParamSet& params() { return *params_; }
  optim::Optimizer& optimizer() { return *optimizer_; }
  JobState state();
  const std::vector<std::unique_ptr<pipeline::Stage>>& parts() const { return parts_; }
  const models::DataSets& data_sets() const { return data_; }
  const Loader& train_loader() const { return train_.front(); }
  const std::vector<Loader>& valid_loaders() const { return valid_; }
  const std::vector<Loader>& test_loaders() const { return test_; }
  // Of this model and tokenizer.
  const LabelBytes& label_bytes();

  // Starts a save of the present state; it continues in the background. Does nothing without --save, and where no step
  // was trained since the last save or the checkpoint that the run began from.
  void save();
  // Before anything but the optimizer changes what is saved.
  void before_change();
  // After a step of which such a copy is made, before anything is said of it: waits until that of the step before is
  // safe, so that no more than one step that was done is lost.
  void settle_copies();
  // Copies the present state into memory of the launcher, where --non-persistent-save-interval asks for it after this
  // step.
  void keep_in_memory();
  // The copies are of a state that is not gone on from.
  void forget_copies();
  // Whether this run goes on from such a copy: what follows a step may not have been done after it.
  bool is_from_memory() const { return is_from_memory_; }
  // --no-load-optim: the step of the checkpoint whose moments were not taken; nothing: none were left.
  std::optional<int64_t> dropped_moments_at() const { return dropped_moments_at_; }
  bool is_saving() const { return saving_; }  // by what check_saving has heard
  // Reports a save that has ended in the background; throws why it failed.
  void check_saving();
  std::optional<int64_t> newest_saved() const { return newest_saved_; }
  // Of a run that goes on from memory: the step of the newest checkpoint that it had, its own or that which it began
  // with; 0: none. The same on all ranks.
  int64_t newest_before() const { return newest_before_; }
  // The present state counts as not saved; with `all`, no state does.
  void forget_saved(bool all = false) {
    saved_step_.reset();
    if (all) newest_saved_.reset();
  }
  // Of --save; null without it, and on all ranks but the first.
  HeldFolder* held_folder() { return held_ ? &*held_ : nullptr; }
  const std::string& resolved_options() const { return resolved_options_; }

 private:
  using FindStep = std::function<std::optional<store::StepEntry>()>;
  std::optional<store::StepEntry> agree_on_step(const FindStep& find) const;
  const std::string& loads_from() const;
  void continue_own_run();
  void find_checkpoint(const OptionTable& table);
  // What a run begins with whose model is another one, as far as they have parameters in common (pretrained.cpp).
  void find_pretrained();
  void check_pretrained() const;
  void load_pretrained();
  void draw_alike(const std::vector<std::string>& drawn);
  std::string pretrained_name(const std::string& parameter) const;
  void check_options(const OptionTable& table, const store::Manifest& manifest);
  void open_data();
  void check_data();
  std::vector<std::string> order_changes(const store::TrainingState& saved) const;
  void build_model();
  // Where the ranks before these have left copies of their state in memory, and not of an older step than the
  // checkpoint's.
  bool load_from_memory();
  bool load_newest_copy();
  void find_own_checkpoint();
  void load_or_initialize();
  void check_goes_on_from(const store::TrainingState& saved);
  void close_checkpoint();
  void prepare_save_folder();
  void report_save(const ckpt::SaveReport& report);

  config::RunConfig config_;
  const dist::Grid& grid_;
  std::string resolved_options_;  // config.toml
  std::unique_ptr<text::Tokenizer> tokenizer_;
  LabelBytes label_bytes_;                     // once it was asked for
  std::vector<store::ExtraFile> extra_files_;  // of every checkpoint
  std::optional<HeldFolder> held_;
  std::optional<store::StepEntry> loaded_;            // the checkpoint that this run began from
  std::optional<ckpt::LoadedCheckpoint> checkpoint_;  // while it is being read
  bool is_pretrained_ = false;                        // it is that of another model
  bool continues_own_run_ = false;                    // whatever the command says of its beginning
  std::optional<int64_t> dropped_moments_at_;
  models::DataSets data_;
  int64_t saved_micro_batch_size_ = 0;        // of the run that was saved
  std::string sample_order_;                  // fingerprint of the training set's order
  std::string evaluation_data_;               // as store::TrainingState has it
  std::vector<Loader> train_, valid_, test_;  // train_ holds one
  spec::ModelSpec model_;                     // the whole one
  std::unique_ptr<tensor::ParamSet> params_;
  std::optional<tensor::LogitMaxima> logits_;            // where queries and keys are clipped
  std::vector<std::unique_ptr<pipeline::Stage>> parts_;  // of the model; more than one with virtual stages
  std::unique_ptr<pipeline::Runner> runner_;
  std::unique_ptr<dist::GradReducer> reducer_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<plan::LrSchedule> lr_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<ckpt::CheckpointWriter> writer_;
  bool is_kept_in_memory(int64_t step) const;
  std::optional<ckpt::Snapshots> snapshots_;
  bool is_from_memory_ = false, said_copy_ = false;
  std::optional<int64_t> saved_step_;  // whose state needs no save
  std::optional<int64_t> newest_saved_;
  int64_t newest_before_ = 0;
  bool saving_ = false;
};

}  // namespace espalier::train
