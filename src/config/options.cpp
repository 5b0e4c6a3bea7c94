// The rows of `espalier train` that are used, whatever the family. The groups are those of Megatron-DeepSpeed's help,
// in its order.
#include "config/internal/rows.h"
#include "config/run_config.h"

namespace espalier::config {
namespace {

void add_regularization(OptionTable& table, RunConfig& config) {
  OptimizerConfig& optimizer = config.optimizer;
  table.group("regularization");
  config.family->add_options(table, config.model, FamilyRows::kRegularization);
  table.add("--weight-decay", optimizer.weight_decay, "decoupled (SGD: of the gradient); not on biases and layer norms")
      .minimum(0)
      .common();
  internal::add_weight_decay_ramp(table, config.schedule);
  table.add("--clip-grad", optimizer.clip_grad, "largest norm of the whole gradient; 0: no clipping")
      .minimum(0)
      .common();
  internal::add_optimizer(table, optimizer);
  internal::add_regularization_inert(table);
}

void add_training(OptionTable& table, RunConfig& config) {
  TrainingConfig& training = config.training;
  table.group("training");
  table.add("--micro-batch-size", training.micro_batch_size, "samples that pass through the model at once")
      .required()
      .minimum(1)
      .maximum(1e6)
      .common()
      .on_resume(ResumeRule::kFree);
  table.add("--global-batch-size", training.global_batch_size, "samples of one step")
      .minimum(1)
      .maximum(1e6)
      .default_text("micro-batch size * data-parallel size")
      .common();
  table
      .add("--rampup-batch-size", training.rampup_batch_size,
           "START INCREMENT SAMPLES: the batch grows from START to the global batch size within SAMPLES samples")
      .common();
  table.add("--train-iters", training.train_iters, "steps of the whole run")
      .minimum(1)
      .maximum(1e12)
      .common()
      .on_resume(ResumeRule::kFree);
  table.add("--train-samples", training.train_samples, "samples of the whole run, instead of --train-iters")
      .minimum(1)
      .maximum(1e18)
      .common()
      .on_resume(ResumeRule::kFree);
  table
      .add("--train-tokens", training.train_tokens,
           "end the run earlier, after the step in which it has consumed this many tokens")
      .minimum(1)
      .maximum(9e18)
      .on_resume(ResumeRule::kFree);
  table.add("--exit-interval", training.exit_interval, "save and exit after a step that is a multiple of this")
      .minimum(1)
      .on_resume(ResumeRule::kFree);
  table
      .add("--exit-duration-in-mins", training.exit_duration_in_mins,
           "save and exit this many minutes after the launch")
      .minimum(0)
      .on_resume(ResumeRule::kFree);
  table.add("--kill-switch-path", training.kill_switch_path, "save and exit when this file exists")
      .value_name("FILE")
      .alias("--kill-switch-file")
      .on_resume(ResumeRule::kFree);
  table.add_choice("--loss-average", training.loss_average,
                   {{"token", LossAverage::kToken}, {"micro-batch", LossAverage::kMicroBatch}},
                   "each token of a step counts the same, or each micro-batch (Megatron-DeepSpeed); equal where no "
                   "token is masked");
  table
      .add("--z-loss", training.z_loss,
           "add this times the square of each token's log of the softmax's sum to the loss, reported separately as 'z "
           "loss' "
           "(PaLM: 1e-4)")
      .minimum(0);
  table
      .add("--skip-step-sigma", training.skip_step_sigma,
           "skip an update whose loss or gradient norm is this many standard deviations above those of the last "
           "updates; 0: skip none")
      .minimum(0);
  table.add("--skip-step-window", training.skip_step_window, "the number of those updates").minimum(2).maximum(100000);
  table
      .add_choice("--spike-policy", training.spike_policy,
                  {{"skip", SpikePolicy::kSkip}, {"stop", SpikePolicy::kStop}, {"roll-back", SpikePolicy::kRollBack}},
                  "what follows a step that --skip-step-sigma skips or whose loss is not finite: skip: nothing more; "
                  "stop: save and end; roll-back: go back to the newest checkpoint and pass over the samples since")
      .on_resume(ResumeRule::kFree);
  table
      .add("--skip-train-iteration-range", training.skip_train_iteration_range,
           "steps FIRST-LAST whose samples are skipped without training, as after a spike of the loss")
      .value_name("RANGE")
      .on_resume(ResumeRule::kFree);
  table.add("--train-range-to-skip", training.train_range_to_skip, "the same, as FIRST LAST FIRST LAST ... (Argonne)")
      .value_name("STEP")
      .on_resume(ResumeRule::kFree);
  table.add("--train-iters-to-skip", training.train_iters_to_skip, "single steps to skip, counted from 0 (Argonne)")
      .value_name("STEP")
      .on_resume(ResumeRule::kFree);
  table.add("--num-threads", training.num_threads, "threads of one process")
      .minimum(1)
      .maximum(4096)
      .default_text("usable cores")
      .on_resume(ResumeRule::kFree);
  using spec::AttentionBackend;
  table
      .add_choice(
          "--attention-backend", training.attention_backend,
          {{"flash", AttentionBackend::kFlash},
           {"cudnn", AttentionBackend::kCudnn},
           {"auto", AttentionBackend::kFlash},
           {"fused", AttentionBackend::kFlash},
           {"unfused", AttentionBackend::kFlash},
           {"local", AttentionBackend::kFlash}},
          "whose kernels compute attention on a GPU: Espalier's, which all words of Megatron's mean, or cuDNN's "
          "(causal, without dropout or a bias; has not run on a GPU yet)")
      .on_resume(ResumeRule::kFree);
  // A flag of NVIDIA's, with a word in Argonne's fork.
  table
      .add("--profile", training.profile,
           "where the time of a step goes, as a table in the log and a trace for Perfetto; the word changes nothing")
      .choices({"pt", "pt-full"})
      .on_resume(ResumeRule::kFree);
  table.add("--profile-step-start", training.profile_step_start, "profile the steps after this one ...")
      .minimum(0)
      .default_text("10 with --profile")
      .on_resume(ResumeRule::kFree);
  table.add("--profile-step-end", training.profile_step_end, "... up to and including this one")
      .minimum(1)
      .default_text("start + 2")
      .on_resume(ResumeRule::kFree);
  table
      .add("--allow-memory-overcommit", config.allow_memory_overcommit,
           "start even if this machine has less memory than its processes of the run need")
      .not_in_recipe();
  table.add("--validate-only", config.validate_only, "check everything, print the resolved options, start nothing")
      .not_in_recipe()
      .common();
  internal::add_training_inert(table);
}

void add_recompute(OptionTable& table, RunConfig& config) {
  TrainingConfig& training = config.training;
  table.group("activation recompute");
  table
      .add("--checkpoint-activations", training.checkpoint_activations,
           "keep only layer inputs and compute the rest again in the backward pass")
      .common()
      .on_resume(ResumeRule::kFree);
  table.add("--checkpoint-num-layers", training.checkpoint_num_layers, "layers between two kept inputs")
      .minimum(1)
      .default_text("1")
      .on_resume(ResumeRule::kFree);
  table
      .add_choice("--recompute-granularity", training.recompute_granularity,
                  {{"none", RecomputeGranularity::kNone},
                   {"selective", RecomputeGranularity::kSelective},
                   {"full", RecomputeGranularity::kFull}},
                  "full: whole layers; selective: only the attention probabilities, which are never kept anyway")
      .on_resume(ResumeRule::kFree);
  table
      .add_choice("--recompute-method", training.recompute_method,
                  {{"uniform", RecomputeMethod::kUniform}, {"block", RecomputeMethod::kBlock}},
                  "all layers in chunks, or the first layers only")
      .on_resume(ResumeRule::kFree);
  table
      .add("--activations-checkpoint-method", training.activations_checkpoint_method,
           "--recompute-granularity full with this --recompute-method, as older Megatron-LM spells it")
      .choices({"uniform", "block"})
      .default_text("none")
      .on_resume(ResumeRule::kFree);
  table
      .add("--recompute-num-layers", training.recompute_num_layers,
           "layers per chunk (uniform), or number of layers (block)")
      .alias("--activations-checkpoint-num-layers")
      .minimum(1)
      .default_text("1")
      .on_resume(ResumeRule::kFree);
  table
      .add("--distribute-checkpointed-activations", config.parallel.distribute_checkpointed_activations,
           "each tensor rank keeps its part of the layer inputs that recompute keeps")
      .alias("--distribute-saved-activations")
      .on_resume(ResumeRule::kFree);
  table.add("--partition-activations", config.parallel.partition_activations, "the same, as DeepSpeed names it")
      .on_resume(ResumeRule::kFree);
  internal::add_recompute_inert(table);
}

void add_initialization(OptionTable& table, RunConfig& config) {
  table.group("initialization");
  table.add("--seed", config.training.seed, "of weights, dropout and the order of samples")
      .minimum(1)
      .maximum(4294967295.0)
      .common();
  config.family->add_options(table, config.model, FamilyRows::kInitialization);
  table.add("--init-method-xavier-uniform", config.training.init_method_xavier_uniform,
            "weights are uniform within sqrt(6 / (rows + columns)) of 0, instead of --init-method-std");
  table.add("--adjust-word-embedding-init", config.training.adjust_word_embedding_init,
            "the word embedding is drawn with --word-embedding-init-std (Argonne)");
  table
      .add("--word-embedding-init-std", config.training.word_embedding_init_std,
           "standard deviation of the word embedding, with --adjust-word-embedding-init")
      .minimum(0);
  internal::add_initialization_inert(table);
}

void add_checkpointing(OptionTable& table, RunConfig& config) {
  CheckpointConfig& checkpoint = config.checkpoint;
  table.group("checkpointing");
  table.add("--save", checkpoint.save, "run folder: checkpoints, logs, metrics")
      .value_name("DIR")
      .common()
      .on_resume(ResumeRule::kFree);
  table.add("--save-interval", checkpoint.save_interval, "steps between checkpoints; required with --save")
      .alias("--persistent-save-interval")
      .minimum(1)
      .common()
      .on_resume(ResumeRule::kFree);
  table
      .add("--non-persistent-save-interval", checkpoint.non_persistent_save_interval,
           "steps between copies of the state in memory of `espalier launch`, which outlives the ranks: those that it "
           "starts again go on from there. Takes twice the memory of weights and optimizer")
      .value_name("N")
      .minimum(1)
      .on_resume(ResumeRule::kFree);
  table
      .add("--replication", checkpoint.replication,
           "send the copies of --non-persistent-save-interval to another machine as well, in the background, where no "
           "replica there holds the same state: a run that loses a machine for good goes on from there. Takes as much "
           "memory again")
      .on_resume(ResumeRule::kFree);
  table
      .add(
          "--replication-jump", checkpoint.replication_jump,
          "copies of rank n go to rank n + N (default: the number of ranks of the largest machine, so to the next one)")
      .value_name("N")
      .minimum(1)
      .on_resume(ResumeRule::kFree);
  table
      .add("--replication-factor", checkpoint.replication_factor,
           "machines that hold the state of a rank, its own among them; only 2 is supported")
      .minimum(2)
      .maximum(2)
      .on_resume(ResumeRule::kFree);
  table
      .add("--save-keep-last", checkpoint.save_keep_last,
           "keep the newest N checkpoints and those around spikes, and remove others in the background once the newest "
           "has been read back (default with --save-keep-every: 1)")
      .minimum(1)
      .on_resume(ResumeRule::kFree);
  table
      .add("--save-keep-every", checkpoint.save_keep_every,
           "keep checkpoints of steps divisible by N, and remove others except the newest")
      .alias("--save-retain-interval")
      .minimum(1)
      .on_resume(ResumeRule::kFree);
  table
      .add(
          "--save-keep-epochs", checkpoint.save_keep_epochs,
          "keep the first checkpoint at or after the end of each pass over the training data, and remove others except "
          "the newest")
      .on_resume(ResumeRule::kFree);
  table
      .add("--save-hf", checkpoint.save_hf,
           "steps between Hugging Face folders, made in the background from checkpoints, and from the last one: "
           "RUN/hf/step_...")
      .minimum(1)
      .on_resume(ResumeRule::kFree);
  table.add("--load", checkpoint.load, "run folder (its newest complete step) or step folder to continue from")
      .value_name("DIR")
      .common()
      .on_resume(ResumeRule::kFree);
  table.add("--ckpt-step", checkpoint.ckpt_step, "step of the run folder to load")
      .minimum(1)
      .on_resume(ResumeRule::kFree);
  table.add("--finetune", checkpoint.finetune, "load only the weights and start at step 0")
      .on_resume(ResumeRule::kFree);
  table.add("--no-load-optim", checkpoint.no_load_optim, "load without the optimizer's state")
      .on_resume(ResumeRule::kFree);
  table
      .add("--reset-progress", checkpoint.reset_progress,
           "with --no-load-optim the same as --finetune, as BLOOMZ's scripts have it")
      .on_resume(ResumeRule::kFree);
  table.add("--no-load-rng", checkpoint.no_load_rng, "nothing changes: randomness is counter-based and has no state")
      .on_resume(ResumeRule::kFree);
  table
      .add("--override", checkpoint.overrides,
           "options that may differ from the checkpoint's although they change what is computed")
      .value_name("OPTION")
      .not_in_recipe();
  internal::add_checkpointing_inert(table);
}

void add_mixed_precision(OptionTable& table, RunConfig& config) {
  OptimizerConfig& optimizer = config.optimizer;
  table.group("mixed precision");
  table.add("--fp16", config.training.fp16, "compute in float16 with loss scaling").common();
  table.add("--bf16", config.training.bf16, "compute in bfloat16").common();
  table
      .add("--fp8-format", config.training.fp8_format,
           "round what the linear layers of transformer layers multiply to fp8, each tensor scaled by its largest "
           "magnitude: all to e4m3, or gradients to e5m2 (hybrid); needs --bf16")
      .choices({"e4m3", "hybrid"})
      .default_text("none");
  table.add("--fp8-e4m3", config.training.fp8_e4m3, "the same as --fp8-format e4m3");
  table.add("--fp8-hybrid", config.training.fp8_hybrid, "the same as --fp8-format hybrid");
  table
      .add("--fp8-recipe", config.training.fp8_recipe,
           "where the scales of --fp8-format come from: the tensor itself (tensorwise); others are refused beside it")
      .choices({"tensorwise", "delayed", "mxfp8", "blockwise", "custom"})
      .default_text("tensorwise");
  table.add("--loss-scale", optimizer.loss_scale, "constant scale of the loss, fp16; 0: dynamic")
      .minimum(0)
      .default_text("dynamic");
  table.add("--initial-loss-scale", optimizer.initial_loss_scale, "dynamic scale at the start").minimum(1);
  table.add("--min-loss-scale", optimizer.min_loss_scale, "floor of the dynamic scale").minimum(0);
  table.add("--loss-scale-window", optimizer.loss_scale_window, "steps without overflow after which it doubles")
      .minimum(1);
  table.add("--hysteresis", optimizer.hysteresis, "overflows after which it halves").minimum(1);
  internal::add_mixed_precision_inert(table);
}

void add_logging(OptionTable& table, RunConfig& config) {
  LoggingConfig& logging = config.logging;
  table.group("logging");
  table.add("--log-interval", logging.log_interval, "steps between log lines")
      .minimum(1)
      .common()
      .on_resume(ResumeRule::kFree);
  table.add("--tensorboard-dir", logging.tensorboard_dir, "folder of TensorBoard files")
      .value_name("DIR")
      .default_text("tensorboard/ in the --save folder")
      .common()
      .on_resume(ResumeRule::kFree);
  table.add("--tensorboard-log-interval", logging.tensorboard_log_interval, "steps between TensorBoard points")
      .minimum(1)
      .on_resume(ResumeRule::kFree);
  table.add("--log-params-norm", logging.log_params_norm, "norm of all parameters").on_resume(ResumeRule::kFree);
  table.add("--log-num-zeros-in-grad", logging.log_num_zeros_in_grad, "zeros of the gradient")
      .on_resume(ResumeRule::kFree);
  table.add("--log-timers-to-tensorboard", logging.log_timers_to_tensorboard, "times to TensorBoard")
      .on_resume(ResumeRule::kFree);
  table.add("--log-batch-size-to-tensorboard", logging.log_batch_size_to_tensorboard, "batch size to TensorBoard")
      .on_resume(ResumeRule::kFree);
  table
      .add_negative("--no-log-learnig-rate-to-tensorboard", logging.log_learning_rate_to_tensorboard,
                    "no learning rate in TensorBoard (spelt as upstream)")
      .alias("--no-log-learning-rate-to-tensorboard")
      .on_resume(ResumeRule::kFree);
  table
      .add_negative("--no-log-loss-scale-to-tensorboard", logging.log_loss_scale_to_tensorboard,
                    "no loss scale in TensorBoard")
      .alias("--disable-log-loss-scale-to-tensorboard")
      .on_resume(ResumeRule::kFree);
  table
      .add("--log-validation-ppl-to-tensorboard", logging.log_validation_ppl_to_tensorboard,
           "perplexity of validation sets to TensorBoard")
      .on_resume(ResumeRule::kFree);
  table.add("--log-level", logging.log_level, "what is printed on stderr")
      .choices({"debug", "info", "warning", "error", "critical"})
      .on_resume(ResumeRule::kFree);
  internal::add_logging_inert(table);
}

void add_network_size(OptionTable& table, RunConfig& config) {
  table.group("network size");
  config.family->add_options(table, config.model, FamilyRows::kSize);
  table
      .add("--make-vocab-size-divisible-by", config.tokenizer.make_vocab_size_divisible_by,
           "round the vocabulary up to a multiple of this and of the tensor-parallel size")
      .minimum(1)
      .maximum(1e6)
      .on_resume(ResumeRule::kFree);
  table.add("--pad-vocab-size-to", config.tokenizer.pad_vocab_size_to, "rows of the embedding, exactly")
      .alias("--padded-vocab-size")
      .minimum(1)
      .maximum(1e9)
      .on_resume(ResumeRule::kRefused);
  config.family->add_options(table, config.model, FamilyRows::kShape);
  internal::add_network_size_inert(table);
}

}  // namespace

void add_options(const Family& family, OptionTable& table, RunConfig& config) {
  config.family = &family;
  config.model = family.new_config();
  config.tokenizer.type = family.tokenizer_type;
  table.allow_recipes();
  internal::add_names_elsewhere(table);
  add_network_size(table, config);
  add_regularization(table, config);
  add_training(table, config);
  add_recompute(table, config);
  add_initialization(table, config);
  internal::add_learning_rate(table, config);
  add_checkpointing(table, config);
  add_mixed_precision(table, config);
  internal::add_distributed(table, config.grid, config.parallel);
  internal::add_validation(table, config.data);
  internal::add_data(table, config);
  internal::add_families_inert(table);
  add_logging(table, config);
  internal::add_zero(table, config.parallel);
  internal::add_deepspeed(table, config.parallel);
  internal::add_argonne_model(table);
  internal::add_argonne_optimizers(table);
  internal::add_argonne_training(table);
  internal::add_argonne_distributed(table);
  internal::add_argonne_data(table);
  internal::add_argonne_logging(table);
  internal::add_argonne_families(table);
  internal::add_nvidia_model(table);
  internal::add_nvidia_training(table);
  internal::add_nvidia_systems(table);
}

}  // namespace espalier::config
