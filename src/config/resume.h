// The contract of resuming: which options may differ from those a checkpoint was saved with.
//
//   RunConfig saved;                                           // bound to `then`, filled from manifest.config
//   ResumeFlags flags{config.checkpoint.overrides, ...};
//   const auto differences = compare_options(then, now, flags, problems);
//   check_model(manifest, ...), check_tokenizer(...), check_sample_order(...)  // what no option shows
//   problems.raise();                                          // everything in one report
//   if (uses_saved_schedule(differences)) config.schedule = saved.schedule;
//
// The rule of an option is in its row (Option::on_resume). Three depend on others: the length of the run counts as
// learning rate where the decay ends with it; max_position_embeddings needs only --override with ALiBi, where no
// parameter has that size; pad_vocab_size_to may be left out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/options.h"
#include "store/beginning.h"
#include "store/manifest.h"
#include "store/step_writer.h"

namespace espalier::config {

struct RunConfig;
struct CheckpointConfig;

struct ResumeFlags {
  std::vector<std::string> overrides;  // --override NAME...
  bool override_lr_scheduler = false;
  bool use_checkpoint_lr_scheduler = false;
  // The schedules of the checkpoint and of the command line agree up to here (plan::same_until): either may count.
  bool same_rates_so_far = false;
  bool finetune = false;  // weights only, a new run: nothing but the model has to agree
};

struct OptionDifference {
  std::string key;             // "global_batch_size"
  std::string saved, present;  // as in config.toml; "(unset)"
  ResumeRule rule = ResumeRule::kOverride;
  bool use_saved = false;  // the checkpoint's value continues to hold
};

// Every used option whose value differs, in the order of the table. Both tables hold resolved values and have the
// same rows. What the contract forbids becomes a problem, also a name in --override that is none.
std::vector<OptionDifference> compare_options(const OptionTable& saved, const OptionTable& present,
                                              const ResumeFlags& flags, Problems& problems);

// True when the checkpoint's learning-rate schedule replaces that of the command line.
bool uses_saved_schedule(const std::vector<OptionDifference>& differences);

// The differences as lines "name | checkpoint | command line | used", for people; "" when there are none.
std::string to_table(const std::vector<OptionDifference>& differences);

// `present` has the facts of the model that is about to be built.
void check_model(const store::ModelFacts& saved, const store::ModelFacts& present, Problems& problems);

// The vocabulary and the other files of the tokenizer by content, so that moving them is free. "tokenizer" in
// --override lets them differ.
void check_tokenizer(const store::Manifest& saved, const std::vector<store::ExtraFile>& present,
                     const ResumeFlags& flags, Problems& problems);

// That the checkpoint holds the state of the run's optimizer, whatever --override has let differ, and that each of its
// tensor ranks can read its part of it.
void check_optimizer_state(const store::Manifest& saved, const RunConfig& present, Problems& problems);

// The order of samples and the scheme of randomness, which may change although no option differs (a data file was
// rebuilt; a longer run needs one more epoch). `order_changes` says in a line each what reads other samples now; empty
// when nothing does. "sample_order" and "random_scheme" in --override let them differ, and so does an option that
// decides the order. A checkpoint of another program (scheme 0, no order) is not compared.
void check_order(const store::TrainingState& saved, const store::TrainingState& present,
                 const std::vector<std::string>& order_changes, const ResumeFlags& flags, Problems& problems);

// That no batch from `consumed_samples` on has truncated samples of two lengths, as an overridden batch size may bring
// about: their stages begin after so many steps of it.
void check_length_stages(const RunConfig& config, int64_t consumed_samples, Problems& problems);

// What the command says of how its run begins.
store::Beginning beginning_of(const RunConfig& config);

// What makes the same numbers differ in their last bits: layout, threads, CPU, libtorch; one line each, to be said
// once.
std::vector<std::string> environment_changes(const store::TrainingState& saved, const store::TrainingState& present);

}  // namespace espalier::config
