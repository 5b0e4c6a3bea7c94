// The rows of `espalier train gpt` that are used. The groups are those of Megatron-DeepSpeed's help, in its order.
#include <tuple>

#include "plan/internal/gpt_rows.h"
#include "plan/run_config.h"

namespace espalier::plan {
namespace {

void add_network_size(OptionTable& table, RunConfig& config) {
  spec::GptConfig& model = config.model;
  table.group("network size");
  table.add("--num-layers", model.num_layers, "transformer blocks").required().minimum(1).maximum(1e4).common();
  table.add("--hidden-size", model.hidden_size, "width of the residual stream")
      .required()
      .minimum(1)
      .maximum(1e6)
      .common();
  table.add("--ffn-hidden-size", model.ffn_hidden_size, "width inside the MLP")
      .minimum(1)
      .maximum(1e7)
      .default_text("4 * hidden size");
  table.add("--num-attention-heads", model.num_attention_heads, "attention heads")
      .required()
      .minimum(1)
      .maximum(1e5)
      .common();
  table.add("--kv-channels", model.kv_channels, "width of one head")
      .minimum(1)
      .maximum(1e5)
      .default_text("hidden size / heads");
  table
      .add("--max-position-embeddings", model.max_position_embeddings,
           "longest sequence of the model; at least the sequence length, also with alibi")
      .minimum(1)
      .maximum(1e9)
      .default_text("none")
      .common();
  table
      .add("--make-vocab-size-divisible-by", config.tokenizer.make_vocab_size_divisible_by,
           "round the vocabulary up to a multiple of this and of the tensor-parallel size")
      .minimum(1)
      .maximum(1e6);
  table.add("--pad-vocab-size-to", config.tokenizer.pad_vocab_size_to, "rows of the embedding, exactly")
      .minimum(1)
      .maximum(1e9);
  table.add("--layernorm-epsilon", model.layernorm_epsilon, "added to the variance in layer norms").minimum(0);
  table.add("--apply-residual-connection-post-layernorm", model.residual_from_layernorm,
            "residual branches start after the layer norm (BERT's order)");
  table.add("--embed-layernorm", model.embed_layernorm, "layer norm after the word embedding (BLOOM)").common();
  table
      .add_choice("--position-embedding-type", model.position_embedding,
                  {{"absolute", spec::PositionEmbedding::kLearned},
                   {"alibi", spec::PositionEmbedding::kAlibi},
                   {"learned_absolute", spec::PositionEmbedding::kLearned}},
                  "learned positions, or ALiBi")
      .common()
      .refuse_value("rotary", "rotary positions come with the Llama family; use absolute or alibi")
      .refuse_value("rope", "rotary positions come with the Llama family; use absolute or alibi");
  table.add("--untie-embeddings-and-output-weights", config.untie_output, "the output layer has weights of its own");
  table.add_negative("--no-bias-gelu-fusion", config.gelu_is_fused,
                     "exact (erf) gelu instead of the tanh form, as upstream");
  table.add("--openai-gelu", config.openai_gelu, "tanh gelu also with --no-bias-gelu-fusion");
  internal::add_network_size_inert(table);
}

void add_regularization(OptionTable& table, RunConfig& config) {
  OptimizerConfig& optimizer = config.optimizer;
  table.group("regularization");
  table.add("--attention-dropout", config.model.attention_dropout, "dropout of attention probabilities")
      .minimum(0)
      .common();
  table.add("--hidden-dropout", config.model.hidden_dropout, "dropout before residual additions").minimum(0).common();
  table.add("--weight-decay", optimizer.weight_decay, "decoupled; not on biases and layer norms").minimum(0).common();
  table.add("--clip-grad", optimizer.clip_grad, "largest norm of the whole gradient; 0: no clipping")
      .minimum(0)
      .common();
  table.add("--adam-beta1", optimizer.adam_beta1, "decay of the first moment").minimum(0).maximum(1);
  table.add("--adam-beta2", optimizer.adam_beta2, "decay of the second moment").minimum(0).maximum(1);
  table.add("--adam-eps", optimizer.adam_eps, "added to the root of the second moment").minimum(0);
  table.add_choice("--optimizer", optimizer.optimizer, {{"adam", OptimizerType::kAdam}}, "AdamW")
      .refuse_value("sgd", "only AdamW is built in; use --optimizer adam");
  internal::add_regularization_inert(table);
}

void add_training(OptionTable& table, RunConfig& config) {
  TrainingConfig& training = config.training;
  table.group("training");
  table.add("--micro-batch-size", training.micro_batch_size, "samples that pass through the model at once")
      .required()
      .minimum(1)
      .maximum(1e6)
      .common();
  table.add("--global-batch-size", training.global_batch_size, "samples of one step")
      .minimum(1)
      .maximum(1e6)
      .default_text("micro-batch size * data-parallel size")
      .common();
  table
      .add("--rampup-batch-size", training.rampup_batch_size,
           "START INCREMENT SAMPLES: the batch grows from START to the global batch size within SAMPLES samples")
      .common();
  table.add("--train-iters", training.train_iters, "steps of the whole run").minimum(1).maximum(1e12).common();
  table.add("--train-samples", training.train_samples, "samples of the whole run, instead of --train-iters")
      .minimum(1)
      .maximum(1e18)
      .common();
  table.add("--exit-interval", training.exit_interval, "save and leave after a step that this divides").minimum(1);
  table.add("--exit-duration-in-mins", training.exit_duration_in_mins, "save and leave after so many minutes")
      .minimum(0);
  table.add("--kill-switch-path", training.kill_switch_path, "save and leave when this file exists")
      .value_name("FILE")
      .alias("--kill-switch-file");
  table.add_choice("--loss-average", training.loss_average,
                   {{"token", LossAverage::kToken}, {"micro-batch", LossAverage::kMicroBatch}},
                   "each token of a step counts the same, or each micro-batch (Megatron-DeepSpeed); equal where no "
                   "token is masked");
  table.add("--num-threads", training.num_threads, "threads of one process")
      .minimum(1)
      .maximum(4096)
      .default_text("usable cores");
  table.add("--profile-step-start", training.profile_step_start, "trace the steps after this one ...").minimum(0);
  table.add("--profile-step-end", training.profile_step_end, "... up to and including this one, for Perfetto")
      .minimum(1)
      .default_text("start + 2");
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
      .common();
  table.add("--checkpoint-num-layers", training.checkpoint_num_layers, "layers between two kept inputs")
      .minimum(1)
      .default_text("1");
  table.add_choice("--recompute-granularity", training.recompute_granularity,
                   {{"none", RecomputeGranularity::kNone},
                    {"selective", RecomputeGranularity::kSelective},
                    {"full", RecomputeGranularity::kFull}},
                   "full: whole layers; selective: only the attention probabilities, which are never kept anyway");
  table.add_choice("--recompute-method", training.recompute_method,
                   {{"uniform", RecomputeMethod::kUniform}, {"block", RecomputeMethod::kBlock}},
                   "all layers in chunks, or the first layers only");
  table.add("--recompute-num-layers", training.recompute_num_layers, "layers of a chunk (uniform), or how many (block)")
      .minimum(1)
      .default_text("1");
  table
      .add("--distribute-checkpointed-activations", config.parallel.distribute_checkpointed_activations,
           "each tensor rank keeps its part of the layer inputs that recompute keeps")
      .alias("--distribute-saved-activations");
  table.add("--partition-activations", config.parallel.partition_activations, "the same, as DeepSpeed names it");
  internal::add_recompute_inert(table);
}

void add_initialization(OptionTable& table, RunConfig& config) {
  table.group("initialization");
  table.add("--seed", config.training.seed, "of weights, dropout and the order of samples")
      .minimum(1)
      .maximum(4294967295.0)
      .common();
  table
      .add("--init-method-std", config.model.init_method_std,
           "standard deviation of weights; output layers of a block get it / sqrt(2 * layers)")
      .minimum(0)
      .common();
  internal::add_initialization_inert(table);
}

void add_learning_rate(OptionTable& table, RunConfig& config) {
  ScheduleConfig& schedule = config.schedule;
  table.group("learning rate");
  table.add("--lr", schedule.lr, "largest learning rate").minimum(0).common();
  table.add("--min-lr", schedule.min_lr, "floor of the schedule").minimum(0).common();
  table
      .add_choice(
          "--lr-decay-style", schedule.lr_decay_style,
          {{"linear", DecayStyle::kLinear}, {"cosine", DecayStyle::kCosine}, {"constant", DecayStyle::kConstant}},
          "shape after the warm-up")
      .common()
      .refuse_value("inverse-square-root", "use linear, cosine or constant")
      .refuse_value("infinite-cosine", "use linear, cosine or constant")
      .refuse_value("infinite-inv-square-root", "use linear, cosine or constant");
  table.add("--lr-decay-iters", schedule.lr_decay_iters, "steps until the floor")
      .minimum(1)
      .maximum(1e12)
      .default_text("the whole run");
  table.add("--lr-decay-samples", schedule.lr_decay_samples, "samples until the floor")
      .minimum(1)
      .maximum(1e18)
      .default_text("the whole run")
      .common();
  table.add("--lr-decay-tokens", schedule.lr_decay_tokens, "tokens until the floor; wins over the two above")
      .minimum(1);
  table.add("--lr-warmup-fraction", schedule.lr_warmup_fraction, "share of the decay that warms up")
      .minimum(0)
      .maximum(1);
  table.add("--lr-warmup-iters", schedule.lr_warmup_iters, "steps that warm up").minimum(0).maximum(1e12).common();
  table.add("--lr-warmup-samples", schedule.lr_warmup_samples, "samples that warm up")
      .minimum(0)
      .maximum(1e18)
      .common();
  table
      .add("--override-lr-scheduler", schedule.override_lr_scheduler,
           "on --load, these options win over the checkpoint's")
      .alias("--override-opt_param-scheduler");
  table
      .add("--use-checkpoint-lr-scheduler", schedule.use_checkpoint_lr_scheduler,
           "on --load, the checkpoint's win over these options")
      .alias("--use-checkpoint-opt_param-scheduler");
  internal::add_learning_rate_inert(table);
}

void add_checkpointing(OptionTable& table, RunConfig& config) {
  CheckpointConfig& checkpoint = config.checkpoint;
  table.group("checkpointing");
  table.add("--save", checkpoint.save, "run folder: checkpoints, logs, metrics").value_name("DIR").common();
  table.add("--save-interval", checkpoint.save_interval, "steps between checkpoints; required with --save")
      .minimum(1)
      .common();
  table.add("--load", checkpoint.load, "run folder (its newest complete step) or step folder to go on from")
      .value_name("DIR")
      .common();
  table.add("--ckpt-step", checkpoint.ckpt_step, "step of the run folder to load").minimum(1);
  table.add("--finetune", checkpoint.finetune, "load weights only and begin at step 0");
  table.add("--no-load-optim", checkpoint.no_load_optim, "load without the optimizer's state");
  table.add("--no-load-rng", checkpoint.no_load_rng, "nothing changes: randomness is counter-based and has no state");
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

void add_validation(OptionTable& table, RunConfig& config) {
  DataConfig& data = config.data;
  table.group("validation");
  table.add("--eval-iters", data.eval_iters, "batches of one evaluation; 0: none").minimum(0).common();
  table.add("--eval-interval", data.eval_interval, "steps between evaluations").minimum(1).common();
  table.add_truth("--eval-only", data.eval_only, "evaluate and leave; any text means yes, as in Megatron")
      .value_name("true");
  table.add("--skip-train", data.eval_only, "the same as a flag");
}

void add_data(OptionTable& table, RunConfig& config) {
  DataConfig& data = config.data;
  table.group("data and dataloader");
  table.add("--data-path", data.data_path, "a prefix of .bin/.idx, or WEIGHT PREFIX WEIGHT PREFIX ...")
      .value_name("WORD")
      .common();
  table.add("--split", data.split, "shares of training, validation and test of --data-path")
      .default_text("969, 30, 1")
      .common();
  for (const auto& [set, texts, file] :
       {std::tuple("train", &data.train_weighted_split_paths, &data.train_weighted_split_paths_path),
        std::tuple("valid", &data.valid_weighted_split_paths, &data.valid_weighted_split_paths_path),
        std::tuple("test", &data.test_weighted_split_paths, &data.test_weighted_split_paths_path)}) {
    const std::string name = std::string("--") + set + "-weighted-split-paths";
    table.add(name, *texts, "groups \"NAME: WEIGHT BEGIN:END PREFIX, ...\", instead of --data-path")
        .value_name("GROUP");
    table.add(name + "-path", *file, "the same from a file with one line of quoted groups").value_name("FILE");
  }
  table.add("--data-cache-path", data.data_cache_path, "keep index arrays in this folder").value_name("DIR");
  table.add("--data-impl", data.data_impl, "what the token files have to be; lazy and cached are the old TNTIDX format")
      .choices({"infer", "mmap", "lazy", "cached"});
  table.add("--seq-length", data.seq_length, "tokens of one sample").minimum(1).maximum(1e9).common();
  table.add("--encoder-seq-length", data.encoder_seq_length, "another name of --seq-length; not both")
      .minimum(1)
      .maximum(1e9);
  table.add("--reset-position-ids", data.reset_position_ids, "positions begin again at each document");
  table.add("--reset-attention-mask", data.reset_attention_mask, "attention does not cross documents");
  table.add("--eod-mask-loss", data.eod_mask_loss, "no loss where the input is the end of a document");
  table.add_choice("--sample-order", data.sample_order, {{"megatron", SampleOrder::kMegatron}},
                   "order of samples: Megatron's shuffled index arrays");
  table.add_choice("--dataloader-type", data.dataloader_type,
                   {{"single", DataloaderType::kSingle}, {"cyclic", DataloaderType::kCyclic}},
                   "single reads in order; cyclic lets each data-parallel rank shuffle a part of its own every epoch");
  internal::add_tokenizer(table, config.tokenizer);
  internal::add_data_inert(table);
}

void add_logging(OptionTable& table, RunConfig& config) {
  LoggingConfig& logging = config.logging;
  table.group("logging");
  table.add("--log-interval", logging.log_interval, "steps between log lines").minimum(1).common();
  table.add("--tensorboard-dir", logging.tensorboard_dir, "folder of TensorBoard files")
      .value_name("DIR")
      .default_text("tensorboard/ in the --save folder")
      .common();
  table.add("--tensorboard-log-interval", logging.tensorboard_log_interval, "steps between TensorBoard points")
      .minimum(1);
  table.add("--log-params-norm", logging.log_params_norm, "norm of all parameters");
  table.add("--log-num-zeros-in-grad", logging.log_num_zeros_in_grad, "zeros of the gradient");
  table.add("--log-timers-to-tensorboard", logging.log_timers_to_tensorboard, "times to TensorBoard");
  table.add("--log-batch-size-to-tensorboard", logging.log_batch_size_to_tensorboard, "batch size to TensorBoard");
  table
      .add_negative("--no-log-learnig-rate-to-tensorboard", logging.log_learning_rate_to_tensorboard,
                    "no learning rate in TensorBoard (spelt as upstream)")
      .alias("--no-log-learning-rate-to-tensorboard");
  table.add_negative("--no-log-loss-scale-to-tensorboard", logging.log_loss_scale_to_tensorboard,
                     "no loss scale in TensorBoard");
  table.add("--log-validation-ppl-to-tensorboard", logging.log_validation_ppl_to_tensorboard,
            "perplexity of validation sets to TensorBoard");
  table.add("--log-level", logging.log_level, "what is said on stderr")
      .choices({"debug", "info", "warning", "error", "critical"});
  internal::add_logging_inert(table);
}

}  // namespace

void add_gpt_options(OptionTable& table, RunConfig& config) {
  table.allow_recipes();
  add_network_size(table, config);
  add_regularization(table, config);
  add_training(table, config);
  add_recompute(table, config);
  add_initialization(table, config);
  add_learning_rate(table, config);
  add_checkpointing(table, config);
  add_mixed_precision(table, config);
  internal::add_distributed(table, config.grid, config.parallel);
  add_validation(table, config);
  add_data(table, config);
  internal::add_families_inert(table);
  add_logging(table, config);
  internal::add_zero(table, config.parallel);
  internal::add_deepspeed(table, config.parallel);
}

}  // namespace espalier::plan
