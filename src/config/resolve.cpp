// Cross-checks of the options that no single row can make: precision, batch and length of the run.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/format.h"
#include "base/thread_pool.h"
#include "config/family.h"
#include "config/internal/resolver.h"
#include "config/resolving.h"
#include "plan/batch_ramp.h"
#include "plan/stage_params.h"
#include "plan/step_samples.h"
#include "spec/optimizer.h"

namespace espalier::config {
namespace internal {
namespace {

constexpr int64_t kMostSamples = 1'000'000'000'000'000'000;

}  // namespace

void Resolver::resolve_length() {
  DataConfig& data = config_.data;
  if (data.seq_length && data.encoder_seq_length && *data.seq_length != *data.encoder_seq_length) {
    problems_.add(origin("--seq-length"), " and ", origin("--encoder-seq-length"),
                  " are the same option, and differ; give one");
  } else if (!data.seq_length && !data.encoder_seq_length) {
    problems_.add("--seq-length is required: tokens of one sample");
  }
  data.sequence_length = data.seq_length.value_or(data.encoder_seq_length.value_or(0));
  const std::vector<int64_t>& cyclic = data.cyclic_layout;
  const auto is_size = [](int64_t size) { return size >= 1 && size <= 1000000; };
  if (!cyclic.empty() && data.dataloader_type != DataloaderType::kCyclic)
    problems_.add(origin("--cyclic-layout"), " needs --dataloader-type cyclic; leave it out, or give both");
  if (!cyclic.empty() && (cyclic.size() != 2 || !is_size(cyclic[0]) || !is_size(cyclic[1])))
    problems_.add(origin("--cyclic-layout"),
                  " needs 2 numbers, the micro-batch size and the data-parallel size of the run whose order is to be "
                  "read, each 1 to 1000000; for example --cyclic-layout 4 8");
}

void Resolver::resolve_model() {
  config_.family->resolve({config_, table_, problems_}, config_.model);
  if (config_.family->pretrained.folder != nullptr)
    config_.checkpoint.pretrained = config_.family->pretrained.folder(config_.model);
  const spec::OptimizerSettings& optimizer = config_.optimizer;
  const std::pair<const char*, double> forgetting[] = {{"--adam-beta1", optimizer.adam_beta1},
                                                       {"--adam-beta2", optimizer.adam_beta2},
                                                       {"--sgd-momentum", optimizer.sgd_momentum},
                                                       {"--muon-momentum", optimizer.muon_momentum},
                                                       {"--lion-beta1", optimizer.lion_beta1},
                                                       {"--lion-beta2", optimizer.lion_beta2},
                                                       {"--sophiag-beta1", optimizer.sophiag_beta1},
                                                       {"--sophiag-beta2", optimizer.sophiag_beta2},
                                                       {"--ema", optimizer.ema}};
  for (const auto& [name, share] : forgetting)
    if (share >= 1) problems_.add(origin(name), " never forgets; use a number below 1, such as 0.9 or 0.999");
  if (spec::optimizer_kind(optimizer).averages && config_.schedule.lr_decay_style != DecayStyle::kConstant)
    problems_.add(origin("--optimizer"),
                  " averages the weights instead of letting the learning rate decay; use --lr-decay-style constant");
  if (optimizer.ema > 0 && spec::optimizer_kind(optimizer).averages)
    problems_.add(origin("--ema"), ": the weights of ", origin("--optimizer"), " are a mean already; leave it out");
  if (config_.data.eval_ema && optimizer.ema == 0 && !config_.data.eval_only)
    problems_.add(origin("--eval-ema"), " needs a moving average of the weights; give --ema DECAY, such as 0.999");
  const TokenizerConfig& tokenizer = config_.tokenizer;
  if (tokenizer.pad_vocab_size_to && *tokenizer.pad_vocab_size_to % tokenizer.make_vocab_size_divisible_by != 0) {
    const int64_t divisor = tokenizer.make_vocab_size_divisible_by;
    problems_.add(origin("--pad-vocab-size-to"), ": ", *tokenizer.pad_vocab_size_to, " is not divisible by ", divisor,
                  " (--make-vocab-size-divisible-by); use ", multiples_near(*tokenizer.pad_vocab_size_to, divisor));
  }
}

void Resolver::resolve_precision() {
  TrainingConfig& training = config_.training;
  if (training.fp16 && training.bf16)
    problems_.add(origin("--fp16"), " and ", origin("--bf16"),
                  " are mutually exclusive; give one, or neither for fp32");
  training.precision = training.bf16 ? Precision::kBf16 : training.fp16 ? Precision::kFp16 : Precision::kFp32;
  if (given("--fp16-lm-cross-entropy") && !training.fp16)
    problems_.add("--fp16-lm-cross-entropy needs --fp16; leave it out");
  const OptimizerConfig& optimizer = config_.optimizer;
  if (optimizer.min_loss_scale > optimizer.initial_loss_scale)
    problems_.add(origin("--min-loss-scale"), " is above ", origin("--initial-loss-scale"), "; use at most ",
                  format_shortest(optimizer.initial_loss_scale));
}

// What upstream reads beside the format, and what it would ask for that is not what layers compute here.
void Resolver::resolve_fp8() {
  TrainingConfig& training = config_.training;
  struct Saying {
    const char* option;
    bool is_said;
    spec::Fp8 fp8;
  };
  const Saying sayings[] = {{"--fp8-format", training.fp8_format == "e4m3", spec::Fp8::kE4M3},
                            {"--fp8-format", training.fp8_format == "hybrid", spec::Fp8::kHybrid},
                            {"--fp8-e4m3", training.fp8_e4m3, spec::Fp8::kE4M3},
                            {"--fp8-hybrid", training.fp8_hybrid, spec::Fp8::kHybrid}};
  const char* said = nullptr;
  for (const Saying& saying : sayings) {
    if (!saying.is_said) continue;
    if (said != nullptr && training.fp8 != saying.fp8)
      problems_.add(origin(said), " and ", origin(saying.option), " are different formats; give one");
    said = saying.option;
    training.fp8 = saying.fp8;
  }
  if (said == nullptr) return;
  if (!training.bf16)
    problems_.add(origin(said), " rounds what linear layers multiply, which has to be bf16; give --bf16 too");
  if (!training.fp8_recipe.empty() && training.fp8_recipe != "tensorwise")
    problems_.add(origin("--fp8-recipe"),
                  " is not built in: each tensor is scaled by its own largest magnitude; use --fp8-recipe tensorwise");
  for (const auto& [option, what] : std::initializer_list<std::pair<const char*, const char*>>{
           {"--no-fp8-wgrad", "gradients of weights are products of fp8 too"},
           {"--fp8-output-proj", "the output layer stays bf16"},
           {"--fp8-param-gather", "weights are kept and gathered in bf16"},
           {"--first-last-layers-bf16", "all layers are fp8"},
           {"--num-layers-at-start-in-bf16", "all layers are fp8"},
           {"--num-layers-at-end-in-bf16", "all layers are fp8"}})
    if (given(option)) problems_.add(origin(option), ": with ", origin(said), " ", what, "; leave it out");
}

// What no family can have with cuDNN's attention; the family says the rest.
void Resolver::check_attention_backend() {
  if (config_.training.attention_backend != spec::AttentionBackend::kCudnn) return;
  const std::string said = origin("--attention-backend");
  if (config_.parallel.device == Device::kCpu)
    problems_.add(said, " computes on a GPU, and ", origin("--device"), " says the CPU; leave one out");
  if (config_.training.precision == Precision::kFp32)
    problems_.add(said, " computes in bf16 or fp16; give --bf16 or --fp16, or use --attention-backend flash");
  if (!config_.family->attends_plainly)
    problems_.add(said, " has neither the masks nor the biases of ", config_.family->display,
                  "; use --attention-backend flash");
  if (spec::clips_logits(config_.optimizer))
    problems_.add(said, " does not tell the largest logits, which --qk-clip goes by; use --attention-backend flash");
}

void Resolver::resolve_batch() {
  TrainingConfig& training = config_.training;
  // An interleaved pipeline passes micro-batches in groups of as many as it has stages.
  const bool in_groups = config_.parallel.pipeline_schedule == ScheduleKind::kInterleaved;
  const int64_t samples_at_once =
      training.micro_batch_size * config_.grid.data * (in_groups ? config_.grid.pipeline : 1);
  if (samples_at_once == 0) return;  // --micro-batch-size is missing
  check_accumulation();
  if (!training.global_batch_size) training.global_batch_size = samples_at_once;
  const int64_t batch = *training.global_batch_size;
  if (batch % samples_at_once != 0)
    problems_.add(origin("--global-batch-size"), " is not a multiple of ", origin("--micro-batch-size"),
                  " * data-parallel size ", config_.grid.data, in_groups ? " * pipeline stages " : "",
                  in_groups ? concat(config_.grid.pipeline, " (interleaved)") : "", "; use ",
                  multiples_near(batch, samples_at_once));
  if (!training.rampup_batch_size.empty()) {
    const size_t num_problems = problems_.messages().size();
    check_ramp(batch, samples_at_once);
    ramp_is_good_ = problems_.messages().size() == num_problems;
  }
}

// DeepSpeed's JSON may say the same in a third number.
void Resolver::check_accumulation() {
  TrainingConfig& training = config_.training;
  if (!training.gradient_accumulation_steps) return;
  const int64_t steps = *training.gradient_accumulation_steps;
  const int64_t of_rank = training.micro_batch_size * steps, of_all = of_rank * config_.grid.data;
  if (!given("--global-batch-size")) {
    training.global_batch_size = of_all;
  } else if (!config_.num_ranks && *training.global_batch_size % of_rank != 0) {
    problems_.add(origin("--global-batch-size"), " is not a multiple of ", origin("--micro-batch-size"),
                  " * gradient_accumulation_steps ", steps, " (", config_.parallel.deepspeed_config, "); use ",
                  multiples_near(*training.global_batch_size, of_rank));
  } else if (config_.num_ranks && *training.global_batch_size != of_all) {
    problems_.add(origin("--global-batch-size"), " is not ", of_all, ": ", origin("--micro-batch-size"),
                  " * gradient_accumulation_steps ", steps, " (", config_.parallel.deepspeed_config,
                  ") * data-parallel size ", config_.grid.data, "; leave gradient_accumulation_steps out");
  }
}

void Resolver::check_ramp(int64_t batch, int64_t samples_at_once) {
  const std::vector<int64_t>& ramp = config_.training.rampup_batch_size;
  const std::string name = origin("--rampup-batch-size");
  if (ramp.size() != 3) {
    problems_.add(name, " needs 3 values (start, increment, samples), found ", ramp.size());
    return;
  }
  const int64_t start = ramp[0], increment = ramp[1];
  const char* at_once = config_.parallel.pipeline_schedule == ScheduleKind::kInterleaved
                            ? "micro-batch size * data-parallel size * pipeline stages (interleaved)"
                            : "micro-batch size * data-parallel size";
  if (!config_.training.train_samples) problems_.add(name, " needs --train-samples instead of --train-iters");
  if (start < 1 || increment < 1 || ramp[2] < 1 || start > 1000000 || increment > 1000000 || ramp[2] > kMostSamples) {
    problems_.add(name, ": start and increment must be 1 to 1000000, samples 1 to 10^18");
  } else if (start >= batch) {
    problems_.add(name, " starts at ", start, ", not below the global batch size ", batch,
                  "; leave the ramp out or start lower");
  } else if ((batch - start) % increment != 0) {
    problems_.add(name, ": the increment ", increment, " does not divide ", batch, " - ", start, " = ", batch - start,
                  "; use ", divisors_near(increment, batch - start));
  } else if (start % samples_at_once != 0) {
    problems_.add(name, ": the start ", start, " is not a multiple of ", at_once, " = ", samples_at_once, "; use ",
                  multiples_near(start, samples_at_once));
  } else if (increment % samples_at_once != 0) {
    problems_.add(name, ": the increment ", increment, " is not a multiple of ", at_once, " = ", samples_at_once,
                  "; use ", multiples_near(increment, samples_at_once));
  }
}

void Resolver::resolve_num_steps() {
  TrainingConfig& training = config_.training;
  if (config_.family->resolve_epochs != nullptr && training.global_batch_size) {
    config_.family->resolve_epochs(config_, table_, problems_);
    if (!training.train_iters) return;  // nothing to train, or files that cannot be read
  }
  if (training.train_iters && training.train_samples) {
    problems_.add(origin("--train-iters"), " and ", origin("--train-samples"), " are mutually exclusive; give one");
    return;
  }
  if (!training.train_iters && !training.train_samples) {
    if (config_.data.eval_only || config_.plan_only) return;
    const int64_t batch = training.global_batch_size.value_or(0), length = config_.data.sequence_length;
    if (training.train_tokens && batch > 0 && length > 0)
      problems_.add(origin("--train-tokens"),
                    " ends a run early and does not say for how long its data and learning rate ",
                    "are planned for; add --train-samples ", (*training.train_tokens - 1) / length + 1,
                    ", which is as many tokens, or --train-iters");
    else
      problems_.add("one of --train-iters and --train-samples is required: how long to train");
    return;
  }
  if (!training.global_batch_size || !ramp_is_good_) return;
  const int64_t batch = *training.global_batch_size;
  // Samples and tokens are counted in 64 bits.
  const double samples = training.train_iters ? static_cast<double>(*training.train_iters) * static_cast<double>(batch)
                                              : static_cast<double>(*training.train_samples);
  const double tokens_of_sample = static_cast<double>(std::max<int64_t>(1, config_.data.sequence_length));
  if (samples * tokens_of_sample > 9e18) {
    problems_.add(
        origin(training.train_iters ? "--train-iters" : "--train-samples"),
        " makes more than 9e18 tokens; use at most ",
        format_shortest(std::floor(9e18 / tokens_of_sample / (training.train_iters ? static_cast<double>(batch) : 1))));
    return;
  }
  const std::vector<int64_t>& ramp = training.rampup_batch_size;
  const plan::BatchRamp sizes =
      ramp.empty() ? plan::BatchRamp(batch) : plan::BatchRamp(ramp[0], ramp[1], ramp[2], batch);
  training.num_samples = training.train_iters ? *training.train_iters * batch : *training.train_samples;
  training.scheduled_steps = training.train_iters ? *training.train_iters : sizes.num_steps(training.num_samples);
  training.num_steps = training.scheduled_steps;
  if (training.num_steps == 0)
    problems_.add(origin("--train-samples"), " is less than the first batch of ", sizes.global_batch_size(0),
                  " samples; use ", sizes.global_batch_size(0), " or more");
  if (training.train_tokens && config_.data.sequence_length > 0) {
    const int64_t samples_of_tokens = (*training.train_tokens - 1) / config_.data.sequence_length + 1;
    // After the steps that stay below it comes the one that reaches it.
    training.num_steps = std::min(training.num_steps, sizes.num_steps(samples_of_tokens - 1) + 1);
  }
}

void Resolver::resolve_run() {
  TrainingConfig& training = config_.training;
  if (!training.num_threads) training.num_threads = num_usable_cores();
  if (given("--profile") && !training.profile_step_start && !training.profile_step_end)
    training.profile_step_start = 10;  // Megatron-LM's default
  if (training.profile_step_end && !training.profile_step_start)
    problems_.add(origin("--profile-step-end"), " needs --profile-step-start; use ",
                  std::max<int64_t>(0, *training.profile_step_end - 2));
  if (training.profile_step_start && !training.profile_step_end)
    training.profile_step_end = *training.profile_step_start + 2;
  if (training.profile_step_start && *training.profile_step_end <= *training.profile_step_start)
    problems_.add(origin("--profile-step-end"), " is not after ", origin("--profile-step-start"), "; use ",
                  *training.profile_step_start + 1, " or more");
}

}  // namespace internal

namespace {

bool mentions(const std::string& message, const std::string& name) {
  for (size_t at = message.find(name); at != std::string::npos; at = message.find(name, at + 1)) {
    const size_t end = at + name.size();
    if (end == message.size() || (std::isalnum(static_cast<unsigned char>(message[end])) == 0 && message[end] != '-'))
      return true;
  }
  return false;
}

// What messages call that which they derive from options that they do not name.
struct Derived {
  const char* words;
  std::vector<const char*> options;
};
const std::vector<Derived>& derived_words() {
  static const std::vector<const char*> sizes = {"--tensor-model-parallel-size", "--pipeline-model-parallel-size",
                                                 "--context-parallel-size"};
  static const std::vector<Derived> words = {{"data-parallel size", sizes},
                                             {"copies of the model", sizes},
                                             {"sequence length", {"--seq-length", "--encoder-seq-length"}},
                                             {"--seq-length is required", {"--encoder-seq-length"}},
                                             {"global batch size", {"--global-batch-size"}}};
  return words;
}

// An option whose value was refused, or that a misspelt name was perhaps meant for, holds what nobody gave. That is
// said; what follows from it would be no news.
bool goes_by_unclear_option(const OptionTable& table, const std::string& message) {
  for (const auto& option : table.options())
    if (option->unclear() && mentions(message, option->name())) return true;
  for (const Derived& derived : derived_words())
    for (const char* name : derived.options)
      if (table.find(name)->unclear() && mentions(message, derived.words)) return true;
  return false;
}

}  // namespace

void resolve(RunConfig& config, const OptionTable& table, Problems& problems) {
  Problems found;
  internal::Resolver resolver(config, table, problems.empty(), found);
  resolver.resolve_length();
  resolver.resolve_grid();
  resolver.resolve_model();
  resolver.resolve_precision();
  resolver.resolve_fp8();
  resolver.resolve_pipeline();
  resolver.resolve_zero();
  resolver.check_canonical();
  resolver.check_attention_backend();
  resolver.resolve_optimizer();
  resolver.resolve_batch();
  resolver.resolve_recompute();
  resolver.resolve_data();
  resolver.resolve_checkpoint();
  resolver.resolve_run();
  resolver.resolve_num_steps();
  resolver.resolve_skips();
  resolver.resolve_stages();
  resolver.resolve_schedule();
  for (const std::string& message : found.messages())
    if (!goes_by_unclear_option(table, message)) problems.add(message);
}

void set_vocabulary(RunConfig& config, int64_t vocab_size) {
  const TokenizerConfig& tokenizer = config.tokenizer;
  const auto padded = [&](int64_t tensor_parallel) {
    return spec::padded_vocab_size(vocab_size, tokenizer.make_vocab_size_divisible_by, tensor_parallel);
  };
  config.vocabulary = {.size = vocab_size,
                       .padded_size = tokenizer.pad_vocab_size_to.value_or(padded(config.grid.tensor))};
  if (config.vocabulary.padded_size < vocab_size)
    throw UserError(concat("--pad-vocab-size-to ", config.vocabulary.padded_size, " is below the tokenizer's ",
                           vocab_size, " entries; use ", padded(1), " or more"),
                    ExitCode::kUsage);
}

spec::ModelSpec model_spec(const RunConfig& config) {
  spec::ModelSpec model = config.family->model(config);
  for (spec::ParamSpec& param : model.params) {
    if (config.training.init_method_xavier_uniform && param.init.kind == spec::Init::Kind::kNormal)
      param.init = spec::xavier_uniform(param.shape);
    if (config.training.adjust_word_embedding_init && param.name == "word_embeddings.weight")
      param.init = spec::Init::normal(config.training.word_embedding_init_std);
  }
  return model;
}

plan::RunShape run_shape(const RunConfig& config) {
  const TrainingConfig& training = config.training;
  const spec::OptimizerKind& optimizer = spec::optimizer_kind(config.optimizer);
  const double estimates =
      optimizer.estimates_curvature ? 1 / static_cast<double>(config.optimizer.sophiag_update_interval) : 0;
  const ParallelConfig& parallel = config.parallel;
  return {.model = model_spec(config),
          .grid = config.grid,
          .precision = training.precision,
          .fp8 = training.fp8,
          .recompute = training.recompute,
          .schedule = parallel.pipeline_schedule,
          .num_chunks = parallel.num_chunks,
          .partition_method = partition_method(config),
          .sequence_parallel = parallel.sequence_parallel,
          .divides_kept_inputs = parallel.distribute_saved_activations,
          .zero_stage = parallel.zero_stage,
          .zero_reason = parallel.zero_reason,
          .grad_reduce_type = parallel.grad_reduce_type,
          .canonical_reduction = parallel.canonical_reduction,
          .optimizer = &optimizer,
          .passes_per_step = 1 + estimates,
          .z_loss = training.z_loss > 0,
          .sequence_length = config.data.sequence_length,
          .micro_batch_size = training.micro_batch_size,
          .global_batch_size = *training.global_batch_size,
          .rampup_batch_size = training.rampup_batch_size};
}

std::string partition_method(const RunConfig& config) {
  return config.family->partition_method ? config.family->partition_method(config)
                                         : config.parallel.pp_partition_method;
}

std::vector<std::vector<int64_t>> shared_stages(const RunConfig& config) {
  plan::RunShape run = run_shape(config);
  const int64_t stages = config.grid.pipeline, layers = run.model.num_layers();
  if (run.partition_method == "parameters") {
    run.partition_method = "list:";
    for (int64_t stage = 0; stage < stages; ++stage)
      run.partition_method += concat(stage == 0 ? "" : ",", layers / stages + (stage < layers % stages ? 1 : 0));
  }
  return plan::shared_stages(run.model.params, plan::make_partition(run));
}

int64_t tokens_of_sample(const RunConfig& config, int64_t consumed_samples) {
  const int64_t full = config.data.sequence_length;
  const data::LengthStage stage = data::length_at(config.data.length_stages, consumed_samples, full);
  return stage.truncates ? std::min(stage.length, full) : full;
}

int64_t first_sample_of(const RunConfig& config, const data::StageStart& start) {
  if (start.unit != data::StageUnit::kSteps) return data::first_sample_of(start, config.data.sequence_length);
  const TrainingConfig& training = config.training;
  const auto& ramp = training.rampup_batch_size;
  const int64_t batch = training.global_batch_size.value_or(1);  // not known after a problem
  if (ramp.empty()) return start.amount * batch;
  return plan::StepSamples(plan::BatchRamp(ramp[0], ramp[1], ramp[2], batch), start.amount, {}).end();
}

data::DataSetOptions data_sets(const RunConfig& config) {
  data::DataSetOptions sets = config.data;
  const TrainingConfig& training = config.training;
  for (std::string& stage : sets.data_stages) {
    try {
      const auto [start, blend] = data::split_stage(stage, "START: BLEND");
      stage = concat(first_sample_of(config, start), " samples:", blend);
    } catch (const UserError&) {
      continue;  // what is wrong with it is told by plan_data()
    }
  }
  const int64_t per_evaluation = config.data.eval_iters * training.global_batch_size.value_or(0);
  sets.seed = training.seed;
  sets.train_samples = training.num_samples;
  sets.valid_samples = (training.scheduled_steps / config.data.eval_interval + 1) * per_evaluation;
  sets.test_samples = per_evaluation;
  if (config.family->token_file_endings != nullptr) sets.endings = config.family->token_file_endings(config);
  return sets;
}

}  // namespace espalier::config
