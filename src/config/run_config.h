// A whole training run as typed structs: what the options of `espalier train FAMILY` fill, and what libraries receive.
//
//   RunConfig config;
//   OptionTable table("espalier train gpt", "Trains a GPT.");
//   add_options(families::gpt_family(), table, config);
//   Problems problems;
//   if (!table.parse(arguments, problems)) return 0;       // help was printed
//   resolve(config, table, problems);
//   problems.raise();
//
// Field names are those of the options. Fields under "resolved" are derived by resolve(): read those, not the options
// they come from. The rules are those of Megatron-DeepSpeed's arguments.py; docs/options.md lists where we differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/options.h"
#include "config/family.h"
#include "data/data_plan.h"
#include "plan/lr_schedule.h"
#include "plan/run_shape.h"
#include "report/logging_config.h"
#include "spec/attention_backend.h"
#include "spec/fp8.h"
#include "spec/grid.h"
#include "spec/optimizer_settings.h"
#include "spec/vocabulary.h"
#include "text/tokenizer.h"

namespace espalier::config {

using plan::DecayStyle;
using plan::GradReduceType;
using plan::Precision;
using plan::Recompute;
using plan::ScheduleConfig;
using plan::ScheduleKind;
using report::LoggingConfig;
using spec::OptimizerType;

enum class LossAverage { kToken, kMicroBatch };
enum class RecomputeGranularity { kNone, kSelective, kFull };
enum class RecomputeMethod { kUniform, kBlock };
enum class LengthBy { kDividing, kTruncating };  // how samples get the length of a stage
enum class DataloaderType { kSingle, kCyclic };
enum class ReplicaPolicy { kStop, kRepair };
enum class DistributedBackend { kNccl, kGloo };
enum class Device { kAuto, kCpu, kCuda };

// Steps by number, 1 for the first; both ends belong to it.
struct StepRange {
  int64_t first = 0, last = 0;
  bool operator==(const StepRange&) const = default;
};

// What is done about a step whose loss or gradient norm is beyond those before it, or is not finite.
enum class SpikePolicy {
  kSkip,     // its update is not made
  kStop,     // and the run saves and ends
  kRollBack  // the run goes back to its newest checkpoint and passes over what it trained on since
};

struct TrainingConfig {
  int64_t micro_batch_size = 0;
  std::optional<int64_t> global_batch_size;  // set after resolve(): micro-batch size * data-parallel size unless given
  std::vector<int64_t> rampup_batch_size;    // empty, or start, increment, samples (BatchRamp)
  std::optional<int64_t> train_iters, train_samples;  // exactly one
  int64_t seed = 1234;
  std::optional<int64_t> train_tokens;      // ends the run earlier than those two
  bool init_method_xavier_uniform = false;  // of every matrix, by its whole shape
  bool adjust_word_embedding_init = false;  // the word embedding's weights have the standard deviation below
  double word_embedding_init_std = 0.02;
  bool fp16 = false, bf16 = false;
  std::string fp8_format;  // empty, "e4m3" or "hybrid"; the next two are flags that say the same
  bool fp8_e4m3 = false, fp8_hybrid = false;
  std::string fp8_recipe;
  spec::AttentionBackend attention_backend = spec::AttentionBackend::kFlash;  // on a GPU
  LossAverage loss_average = LossAverage::kToken;
  double z_loss = 0;  // coefficient of log(Z)^2; 0: none
  // Updates whose loss or norm is this many deviations above those of the last ones are not made; 0: all are.
  double skip_step_sigma = 0;
  int64_t skip_step_window = 128;
  SpikePolicy spike_policy = SpikePolicy::kSkip;
  bool checkpoint_activations = false;        // older spelling of --recompute-granularity full
  std::string activations_checkpoint_method;  // the same with its --recompute-method: uniform or block
  std::optional<int64_t> checkpoint_num_layers, recompute_num_layers;
  RecomputeGranularity recompute_granularity = RecomputeGranularity::kNone;
  RecomputeMethod recompute_method = RecomputeMethod::kUniform;
  std::optional<int64_t> gradient_accumulation_steps;  // of DeepSpeed's JSON, checked against the batch sizes
  std::optional<int64_t> exit_interval;                // exit after a step that is a multiple of it
  std::optional<int64_t> exit_duration_in_mins;
  std::string kill_switch_path;                                   // a file that stops the run while it exists
  std::vector<std::string> skip_train_iteration_range;            // "FIRST-LAST"
  std::vector<int64_t> train_range_to_skip, train_iters_to_skip;  // pairs; steps counted from 0
  std::optional<int64_t> num_threads;                             // set after resolve(): usable cores unless given
  std::vector<std::string> profile;                               // words of other systems, without effect
  // The trace covers the steps after the first number, up to and including the second.
  std::optional<int64_t> profile_step_start, profile_step_end;

  // resolved
  Precision precision = Precision::kFp32;
  spec::Fp8 fp8 = spec::Fp8::kNone;
  Recompute recompute;
  int64_t num_steps = 0;        // of the whole run; scheduled_steps, or fewer where train_tokens ends it
  int64_t scheduled_steps = 0;  // train_iters, or from train_samples and the ramp
  int64_t num_samples = 0;      // of train_iters full batches, or train_samples
  int64_t num_epochs = 0, steps_per_epoch = 0;  // of a family that counts its runs in epochs
  std::vector<StepRange> skipped_steps;         // whose samples pass without training: in order, apart from each other
};

struct OptimizerConfig : spec::OptimizerSettings {
  double clip_grad = 1.0;            // 0: no clipping
  std::optional<double> loss_scale;  // fp16: constant scale; unset or 0: dynamic
  double initial_loss_scale = 4294967296.0, min_loss_scale = 1.0;
  double loss_scale_window = 1000;  // a number, not an integer, upstream
  int64_t hysteresis = 2;
};

// Where samples come from, and which; data_sets() adds what the rest of the run says of them.
struct DataConfig : data::DataSetOptions {
  std::optional<int64_t> seq_length, encoder_seq_length;
  bool reset_position_ids = false, reset_attention_mask = false, eod_mask_loss = false;
  std::vector<std::string> seq_length_stages;  // parse_length_stage()
  LengthBy seq_length_stages_by = LengthBy::kDividing;
  DataloaderType dataloader_type = DataloaderType::kSingle;
  std::vector<int64_t> cyclic_layout;  // micro-batch size and data-parallel size whose cyclic order is read
  bool allow_other_tokenizer = false;  // the data may have been made with another
  int64_t eval_iters = 100, eval_interval = 1000;
  bool eval_only = false;
  bool eval_ema = false;  // the moving average of --ema instead of the weights
  // Tasks of `espalier eval` on which each saved checkpoint is evaluated, by a process alongside the run.
  std::vector<std::string> eval_tasks, eval_tasks_data;
  std::string eval_tasks_files;
  int64_t eval_tasks_minutes = 60, eval_tasks_threads = 1;

  // resolved
  // sequence_length, of DataSetOptions, is resolved too
  bool weighted_splits = false;                  // the sets come from *_weighted_split_paths, not from data_path
  std::vector<data::LengthStage> length_stages;  // of seq_length_stages
};

struct TokenizerConfig : text::TokenizerOptions {
  TokenizerConfig() { type = "GPT2BPETokenizer"; }
  int64_t make_vocab_size_divisible_by = 128;
  std::optional<int64_t> pad_vocab_size_to;
};

struct CheckpointConfig {
  std::string save, load;
  // resolved, of families that have them: what a run begins with that loads no checkpoint; where predictions go
  std::string pretrained, predictions;
  std::optional<int64_t> save_interval, ckpt_step;
  std::optional<int64_t> rolled_back_to;  // no option: the step of `save` from which a run goes on after a spike
  std::optional<int64_t> non_persistent_save_interval;     // steps between copies of the state in the launcher's memory
  bool replication = false;                                // those copies also go to another machine:
  std::optional<int64_t> replication_jump;                 // to the rank so many further on
  int64_t replication_factor = 2;                          // machines that hold a copy, this one among them
  std::optional<int64_t> save_hf;                          // steps between Hugging Face folders
  std::optional<int64_t> save_keep_last, save_keep_every;  // either, or the next: other checkpoints are removed
  bool save_keep_epochs = false;
  bool finetune = false, no_load_optim = false, no_load_rng = false;
  bool reset_progress = false;         // becomes `finetune`
  std::vector<std::string> overrides;  // --override: option names that may differ from the checkpoint's
};

struct ParallelConfig {
  bool sequence_parallel = false;
  std::string pp_partition_method;  // make_partition()
  std::optional<int64_t> num_layers_per_virtual_pipeline_stage;
  bool enable_zbh1_pipeline = false;
  bool distribute_checkpointed_activations = false, partition_activations = false;
  bool use_distributed_optimizer = false, deepspeed = false;
  bool no_pipeline_parallel = false;         // of DeepSpeed's engine; forbids stages
  std::string deepspeed_config;              // a JSON file, or empty
  std::optional<int64_t> zero_stage_option;  // --zero-stage
  bool zero_stage_is_chosen = false;         // by choose_zero_stage()
  // What gradients are rounded to before ranks exchange them; they are summed up in fp32 on each rank either way.
  GradReduceType grad_reduce_type = GradReduceType::kFp32;
  bool grad_reduce_in_bf16 = false;  // NVIDIA's flag for the same
  bool canonical_reduction = false;  // sums over samples in one order whatever the number of replicas
  // Steps between comparisons of what must be equal on all ranks; 0: only in the first three steps and before each
  // save, which are always compared.
  int64_t check_replicas = 0;
  ReplicaPolicy check_replicas_policy = ReplicaPolicy::kStop;
  Device device = Device::kAuto;
  DistributedBackend distributed_backend = DistributedBackend::kNccl;
  int64_t distributed_timeout_minutes = 10;

  // resolved
  ScheduleKind pipeline_schedule = ScheduleKind::k1F1B;
  int64_t num_chunks = 1;  // parts of the model that each pipeline stage holds
  // 0: every data-parallel rank keeps all of a shard's state; 1: a part of the optimizer's; 2: and of the gradients;
  // 3: and of the weights. resolve() says where the stage comes from.
  int64_t zero_stage = 0;
  std::string zero_reason;                    // where the stage is not what the command line says, or it says none
  bool distribute_saved_activations = false;  // kept layer inputs are divided over tensor ranks
};

struct RunConfig {
  const Family* family = nullptr;  // set by add_options()
  FamilyConfig model;              // the family's own options
  spec::Vocabulary vocabulary;     // set_vocabulary()
  TrainingConfig training;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  DataConfig data;
  TokenizerConfig tokenizer;
  CheckpointConfig checkpoint;
  LoggingConfig logging;
  spec::GridShape grid;  // data is resolved from num_ranks
  ParallelConfig parallel;
  std::optional<int64_t> num_ranks;      // not an option: the launcher's; tensor * context * pipeline when unset
  bool stays_on_one_machine = false;     // not an option either: all of these ranks are, in this start and later ones
  bool plan_only = false;                // espalier plan: neither a learning rate nor a number of steps is asked for
  bool allow_memory_overcommit = false;  // start although the machine has less memory than the run needs
  bool validate_only = false;            // check everything, print the resolved options, start nothing
};

// Every option of BigScience's Megatron-DeepSpeed (used, accepted without effect, or refused with what to use
// instead), ours, and the family's. Defaults are upstream's.
void add_options(const Family& family, OptionTable& table, RunConfig& config);

// Whether --device, or a GPU in this machine, may take the run there.
bool may_go_to_gpu(const RunConfig& config);

// Of replicas on the CPUs of one machine: gives --zero-stage 1 where nothing asks for a stage. It exchanges no more
// bytes than stage 0, and each update of the optimizer is made once. Not where that does not hold (matrix optimizers,
// gradients that travel as bf16), where replica checks are asked for, which see all of the optimizer's state only under
// stage 0, nor where the machines may change, whose copies in memory then fit any number of replicas. Before resolve().
void choose_zero_stage(RunConfig& config, OptionTable& table, Problems& problems);

// Derives what is not given and checks everything that needs no file; adds each problem with the nearest legal choice.
// After a problem the resolved fields may be unset.
void resolve(RunConfig& config, const OptionTable& table, Problems& problems);

// What must exist or be writable before a run: tokenizer, --load and --save folders. Where the data are is checked by
// data::plan_data, which knows the rules of its options.
void check_files(const RunConfig& config, const OptionTable& table, Problems& problems);

// What is right for some number of processes and wrong for the actual one.
void check_runnable(const RunConfig& config, const OptionTable& table, Problems& problems);

// Parsing and all of the above, as train and its engine begin (check_runnable not with --validate-only). Returns false
// when help was printed. The caller has set `config.num_ranks` and `config.stays_on_one_machine`
// if a launcher says so.
bool read_run(const Family& family, const std::vector<std::string>& arguments, RunConfig& config, OptionTable& table,
              Problems& problems);

// Sets vocab_size and padded_vocab_size for a tokenizer with ids 0 to vocab_size - 1: --pad-vocab-size-to, or rounded
// up to a multiple of --make-vocab-size-divisible-by * tensor-parallel size. UserError if the former is too small.
void set_vocabulary(RunConfig& config, int64_t vocab_size);

// Of a resolved run: the family's model, initialized as the run's options say. Without a vocabulary it has no rows of
// words.
spec::ModelSpec model_spec(const RunConfig& config);
// What plans are made from; the vocabulary and the batch are known.
plan::RunShape run_shape(const RunConfig& config);

// Tokens of each sample of a step before which that many samples were consumed.
int64_t tokens_of_sample(const RunConfig& config, int64_t consumed_samples);

// The sample of the run with which a stage begins: of steps, the one that is first after them.
int64_t first_sample_of(const RunConfig& config, const data::StageStart& start);

// The data sets of a resolved run. The number of samples asked of each follows from steps, intervals and batch
// (Megatron's target counts).
data::DataSetOptions data_sets(const RunConfig& config);

// How pipeline stages divide the layers: the family's word, or --pp-partition-method.
std::string partition_method(const RunConfig& config);

// Sets of pipeline stages that hold parameters in common (plan::shared_stages). It does not depend on the vocabulary: a
// boundary that does is between layers that share nothing.
std::vector<std::vector<int64_t>> shared_stages(const RunConfig& config);

LogLevel log_level(const LoggingConfig& logging);

}  // namespace espalier::config
