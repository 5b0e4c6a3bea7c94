#include "train/job.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "ckpt/together.h"
#include "config/resume.h"
#include "data/order_fingerprint.h"
#include "data/store_metadata.h"
#include "dist/shared_folder.h"
#include "families/registry.h"
#include "launch/environment.h"
#include "launch/hold.h"
#include "launch/secret.h"
#include "models/build.h"
#include "plan/flops.h"
#include "plan/layout.h"
#include "plan/partition.h"
#include "plan/stage_params.h"
#include "report/events.h"
#include "spec/optimizer.h"
#include "store/beginning.h"
#include "text/token_bytes.h"
#include "train/model_setup.h"
#include "train/order_record.h"

namespace espalier::train {
namespace {

// The tokenizer's files under their usual names, whatever they are called where they are.
std::vector<store::ExtraFile> tokenizer_files(const text::Tokenizer& tokenizer) {
  std::vector<store::ExtraFile> files;
  for (const auto& [name, path] : tokenizer.files()) files.push_back({"tokenizer/" + name, read_file(path)});
  return files;
}

// What goes into the checkpoints of this run from the one that it begins with: the config.json of a model that came
// from elsewhere, and what was next to the tokenizer's files where those are the same.
std::vector<store::ExtraFile> kept_files(ckpt::LoadedCheckpoint& checkpoint, const std::vector<store::ExtraFile>& own) {
  const store::Manifest& manifest = checkpoint.manifest();
  const bool same_tokenizer = std::all_of(own.begin(), own.end(), [&](const store::ExtraFile& file) {
    const store::StoredFile* stored = manifest.find_file(file.path);
    return stored != nullptr && stored->checksum == hash64(file.content);
  });
  std::vector<store::ExtraFile> kept;
  for (const store::StoredFile& file : manifest.files) {
    const bool is_own = std::any_of(own.begin(), own.end(), [&](const auto& one) { return one.path == file.path; });
    if (!is_own && (file.path.starts_with("huggingface/") || (same_tokenizer && file.path.starts_with("tokenizer/"))))
      kept.push_back({file.path, checkpoint.read_extra_file(file.path)});
  }
  return kept;
}

// Ids that data may hold: those of the tokenizer, or, if another made the data, those that the model has rows for.
int64_t num_ids(const config::RunConfig& config) {
  return config.data.allow_other_tokenizer ? config.vocabulary.padded_size : config.vocabulary.size;
}

std::optional<data::CyclicLayout> cyclic_layout(const config::DataConfig& config) {
  if (config.dataloader_type != config::DataloaderType::kCyclic) return std::nullopt;
  if (config.cyclic_layout.empty()) return data::CyclicLayout{};
  return data::CyclicLayout{.micro_batch_size = config.cyclic_layout[0], .data_parallel_size = config.cyclic_layout[1]};
}

// Of a checkpoint the weights count: it is a beginning, or to be evaluated.
bool begins_anew(const config::RunConfig& config) { return config.checkpoint.finetune || config.data.eval_only; }

store::ModelFacts model_facts(const config::RunConfig& config) {
  return {.family = config.family->name,
          .compute_type = plan::to_string(config.training.precision),
          .vocab_size = config.vocabulary.size,
          .padded_vocab_size = config.vocabulary.padded_size,
          .num_parameters = config::model_spec(config).num_parameters()};
}

// Ranks know their machine from whatever started them.
ckpt::Snapshots::Options snapshot_options(const config::CheckpointConfig& checkpoint, launch::SnapshotSlots& own,
                                          int64_t rank) {
  const launch::RankEnvironment place = launch::detect_environment();
  ckpt::Snapshots::Options options{.own = own, .machine = place.node_rank.value_or(0)};
  if (!checkpoint.replication) return options;
  options.replication.emplace(ckpt::Snapshots::Replication{
      .slots = *launch::snapshot_slots(launch::SlotsOf::kPeer),
      .jump = checkpoint.replication_jump,
      .is_first_start = place.restart_count == 0,
      .link = {.secret = launch::job_secret(place.run_id),
               .name = concat("rank ", rank, " of run '", place.run_id, "', start ", place.restart_count),
               .master_address = place.master_address}});
  if (rank == 0 && !checkpoint.save.empty())
    options.replication->on_change = [folder = checkpoint.save](const auto& event, int64_t step, const auto& detail) {
      report::record_event(folder, event, step, detail);
    };
  return options;
}

}  // namespace

Job::Job(const config::RunConfig& config, const OptionTable& table, const dist::Grid& grid)
    : config_(config), grid_(grid), resolved_options_(table.to_toml()) {
  at::set_num_threads(static_cast<int>(*config_.training.num_threads));
  log_info("> building ", config_.tokenizer.type, " tokenizer ...");
  tokenizer_ = text::load_tokenizer(config_.tokenizer);
  extra_files_ = tokenizer_files(*tokenizer_);
  config::set_vocabulary(config_, tokenizer_->vocab_size());
  const std::string& save = config_.checkpoint.save;
  if (!save.empty() && grid_.rank == 0) held_.emplace(save);
  find_checkpoint(table);
  log_info(" > padded vocab (size: ", config_.vocabulary.size, ") with ",
           config_.vocabulary.padded_size - config_.vocabulary.size,
           " dummy tokens (new size: ", config_.vocabulary.padded_size, ")");
  open_data();
  build_model();
  if (!load_from_memory()) load_or_initialize();
  close_checkpoint();
  if (is_from_memory_ && !save.empty()) find_own_checkpoint();
  if (!is_from_memory_ || (loaded_ && loaded_->step == trainer_->position().step))
    saved_step_ = trainer_->position().step;
  if (!save.empty()) {
    if (grid_.rank == 0) prepare_save_folder();
    dist::check_folder_is_shared(save, grid_.world);
    writer_ = std::make_unique<ckpt::CheckpointWriter>(save, extra_files_, grid_.world);
    writer_->reserve(tensors_to_save(state()));
    optimizer_->before_change([this] { before_change(); });
  }
}

Job::~Job() = default;

// Rank 0 looks; another rank might look a moment later and see another newest step.
std::optional<store::StepEntry> Job::agree_on_step(const FindStep& find) const {
  std::optional<store::StepEntry> entry;
  if (grid_.rank == 0) entry = find();
  const std::string found = grid_.world.gather_texts(entry ? concat(entry->step, " ", entry->folder.string()) : "")[0];
  if (found.empty() || grid_.rank == 0) return entry;
  return store::StepEntry{std::stoll(found), found.substr(found.find(' ') + 1)};
}

// The folder of the checkpoint that find_checkpoint() takes.
const std::string& Job::loads_from() const {
  const config::CheckpointConfig& from = config_.checkpoint;
  return from.rolled_back_to ? from.save : from.load;
}

// A run that began in another folder, or from a part of what was in its own, and has saved since, continues from what
// it saved: the command says how it began.
void Job::continue_own_run() {
  config::CheckpointConfig& from = config_.checkpoint;
  if (from.rolled_back_to || config_.data.eval_only) return;
  if (!grid_.world.any(grid_.rank == 0 && store::has_gone_on(config::beginning_of(config_), from.save))) return;
  log_info("this run began from ", from.load, ", as its command says, and continues from its own newest checkpoint in ",
           from.save, ", where the file .began_from says so");
  continues_own_run_ = true;
  from.load = from.save;
  from.ckpt_step.reset();
  from.finetune = from.no_load_optim = false;
}

void Job::find_checkpoint(const OptionTable& table) {
  continue_own_run();
  const config::CheckpointConfig& from = config_.checkpoint;
  if (loads_from().empty()) return find_pretrained();
  const auto entry = agree_on_step([&]() -> std::optional<store::StepEntry> {
    if (!from.rolled_back_to) return store::find_checkpoint(from.load, from.ckpt_step, from.save);
    return store::StepEntry{*from.rolled_back_to,
                            std::filesystem::path(loads_from()) / store::step_folder_name(*from.rolled_back_to)};
  });
  if (!entry) {
    log_info("no checkpoint in ", from.load, " yet: a new run starts");
    return find_pretrained();
  }
  log_info(" loading checkpoint from ", loads_from(), " at iteration ", entry->step);
  loaded_ = entry;
  ckpt::together(grid_.world, [&] { checkpoint_.emplace(entry->folder); });
  check_options(table, checkpoint_->manifest());
}

void Job::check_options(const OptionTable& table, const store::Manifest& manifest) {
  config::RunConfig saved;
  OptionTable saved_table("espalier train", "");
  Problems problems;
  if (manifest.model.family != config_.family->name) {  // their options have little in common
    config::check_model(manifest.model, model_facts(config_), problems);
    problems.raise();
  }
  families::read_saved_run(manifest, checkpoint_->folder().string(), saved, saved_table, problems);
  saved_micro_batch_size_ = saved.training.micro_batch_size;
  const config::ResumeFlags flags{
      .overrides = config_.checkpoint.overrides,
      .override_lr_scheduler = config_.schedule.override_lr_scheduler,
      .use_checkpoint_lr_scheduler = config_.schedule.use_checkpoint_lr_scheduler,
      .same_rates_so_far = plan::same_until(saved.schedule, config_.schedule, lr_state(manifest.state)),
      .finetune = begins_anew(config_)};
  const auto differences = config::compare_options(saved_table, table, flags, problems);
  // The padded vocabulary belongs to the model and was fixed when it was created.
  config_.vocabulary.padded_size = manifest.model.padded_vocab_size;
  config::check_model(manifest.model, model_facts(config_), problems);
  config::check_tokenizer(manifest, extra_files_, flags, problems);
  if (!begins_anew(config_) && !config_.checkpoint.no_load_optim)
    config::check_optimizer_state(manifest, config_, problems);
  if (config_.data.eval_only && config_.data.eval_ema) store::check_has_ema(manifest, "--eval-ema");
  if (!differences.empty()) log_info("options that differ from the checkpoint's:\n", config::to_table(differences));
  problems.raise();
  if (config::uses_saved_schedule(differences)) config_.schedule = saved.schedule;
}

void Job::open_data() {
  log_info("> building train, validation, and test datasets ...");
  const data::DataSetOptions options = config::data_sets(config_);
  log_info(" > datasets target sizes (minimum size):\n    train:      ", options.train_samples,
           "\n    validation: ", options.valid_samples, "\n    test:       ", options.test_samples);
  // With --data-cache-path the first rank writes what the others then read.
  const bool waits = !options.cache_path.empty() && grid_.rank > 0;
  if (waits) grid_.world.barrier();
  const models::FamilyRuntime& family = models::runtime_of(*config_.family);
  data_ = family.open_data(options, config_, *tokenizer_);
  if (!options.cache_path.empty() && grid_.rank == 0) grid_.world.barrier();
  const models::Collate collate = family.collate(config_, *tokenizer_);
  const int64_t ids = num_ids(config_);
  const Replica replica{.number = grid_.position.data, .count = grid_.shape.data};
  Replica in_training = replica;
  in_training.takes_turns = !config_.parallel.canonical_reduction || config_.parallel.zero_stage >= 2;
  train_.emplace_back(*data_.train, collate, ids, in_training, cyclic_layout(config_.data));
  // Evaluations read whole samples, whatever the stage of the run.
  config::RunConfig evaluated = config_;
  evaluated.data.length_stages.clear();
  const models::Collate collate_whole = family.collate(evaluated, *tokenizer_);
  for (const auto& set : data_.valid) valid_.emplace_back(*set, collate_whole, ids, replica);
  for (const auto& set : data_.test) test_.emplace_back(*set, collate_whole, ids, replica);
  check_data();
  data::OrderFingerprint order = data_.train->fingerprint(train_.front().order());
  order.lengths = config_.data.length_stages;
  sample_order_ = data::to_text(order);
  evaluation_data_ = evaluation_data({&valid_, &test_});
  log_info(data_.train->description());
  log_info("> finished creating ", config_.family->display, " datasets ...");
}

// What `espalier train` has refused before is refused here for those that come without it.
void Job::check_data() {
  std::vector<std::string> prefixes;
  const auto check = [&](const data::SampleSource& set) {
    set.probe_ids(num_ids(config_));
    for (const std::string& prefix : set.prefixes()) prefixes.push_back(prefix);
  };
  check(*data_.train);
  for (const auto& set : data_.valid) check(*set);
  for (const auto& set : data_.test) check(*set);
  if (config_.data.allow_other_tokenizer) return;
  Problems problems;
  for (const std::string& line : data::describe_other_tokenizers(prefixes, *tokenizer_))
    problems.add(line, ". Give the tokenizer that made the data, or --allow-other-tokenizer.");
  problems.raise(ExitCode::kBadData);
}

// What the checkpoint's run would have read and this one does not.
std::vector<std::string> Job::order_changes(const store::TrainingState& saved) const {
  if (saved.sample_order.empty()) return {};  // of another program
  if (data::is_order_text(saved.sample_order))
    return data::order_changes(data::parse_order(saved.sample_order), data::parse_order(sample_order_),
                               saved.consumed_train_samples);
  const std::vector<int64_t> was = {saved_micro_batch_size_, plan::parse_layout(saved.layout).grid.data};
  if (config_.data.dataloader_type == config::DataloaderType::kCyclic && config_.data.cyclic_layout != was)
    return {concat("the checkpoint was saved when the cyclic order still followed the layout, a micro-batch size of ",
                   was[0], " and a data-parallel size of ", was[1], ": --cyclic-layout ", was[0], " ", was[1],
                   " continues it")};
  const std::string present = old_order_fingerprint(*data_.train, saved.consumed_train_samples);
  if (saved.sample_order != present)
    return {concat("the samples around number ", saved.consumed_train_samples, " have the hash ", present, ", and had ",
                   saved.sample_order)};
  log_warning(
      "the checkpoint holds the older fingerprint of the sample order, which covers only 16 samples: a small set of "
      "the blend may have changed unnoticed. The next checkpoint will hold one for every set.");
  return {};
}

void Job::build_model() {
  log_info("building ", config_.family->display, " model ...");
  const plan::RunShape run = config::run_shape(config_);
  model_ = run.model;
  const plan::Partition partition = plan::make_partition(run);
  const int64_t stage = grid_.position.pipeline;
  const spec::Sharing sharing{static_cast<spec::ZeroStage>(config_.parallel.zero_stage), grid_.gradient.size()};
  params_ =
      std::make_unique<tensor::ParamSet>(plan::stage_params(model_.params, partition, stage), grid_.tensor_shard(),
                                         compute_type(config_.training.precision), true, sharing, grid_.device);
  reducer_ = std::make_unique<dist::GradReducer>(*params_, grid_, reduce_options(config_.parallel));
  if (spec::clips_logits(config_.optimizer)) logits_.emplace();
  const nn::LayerBuilder builder{*params_,
                                 grid_,
                                 config_.parallel.sequence_parallel,
                                 &reducer_->layers(),
                                 config_.training.z_loss,
                                 logits_ ? &*logits_ : nullptr,
                                 config_.training.fp8,
                                 config_.training.attention_backend};
  const models::StageOptions options{.recompute = run.recompute,
                                     .seed = static_cast<uint64_t>(config_.training.seed),
                                     .divide_kept_inputs = run.divides_kept_inputs};
  std::vector<pipeline::Stage*> chunks;
  for (int64_t chunk = 0; chunk < partition.num_chunks; ++chunk) {
    parts_.push_back(
        models::runtime_of(*config_.family).build(builder, config_, partition.part(stage, chunk), options));
    chunks.push_back(parts_.back().get());
  }
  runner_ = std::make_unique<pipeline::Runner>(chunks, grid_.pipeline, params_->grad_queue());
  optimizer_ = std::make_unique<optim::Optimizer>(*params_, optimizer_config(config_), grid_, reducer_.get(),
                                                  logits_ ? &*logits_ : nullptr);
  lr_ = std::make_unique<plan::LrSchedule>(config_.schedule);
  trainer_ = std::make_unique<Trainer>(
      config_,
      Trainer::Parts{
          grid_, *runner_, *reducer_, *optimizer_, *lr_, train_.front(), logits_ ? &*logits_ : nullptr,
          [this, recomputed = plan::num_recomputed_layers(run.recompute, partition)](int64_t length) -> SampleFlops {
            config::RunConfig of_length = config_;
            of_length.data.sequence_length = length;
            const spec::ModelSpec model = config::model_spec(of_length);
            return {plan::model_flops(model), plan::hardware_flops(model, recomputed)};
          }});
  const double count = static_cast<double>(model_.num_parameters());
  log_info("estimated model parameters: ", format_shortest(count / 1e9));
}

const LabelBytes& Job::label_bytes() {
  if (label_bytes_.within.defined() || !models::runtime_of(*config_.family).labels_are_text) return label_bytes_;
  const text::TextBytes bytes = text::text_bytes(*tokenizer_);
  if (bytes.within.empty()) return label_bytes_;
  const auto to_tensor = [&](const std::vector<int32_t>& values) {
    at::Tensor of_ids = at::zeros(config_.vocabulary.padded_size, at::kLong).fill_(text::kNoText);  // as padding is
    const auto count = std::min(static_cast<int64_t>(values.size()), of_ids.size(0));
    std::copy_n(values.begin(), count, of_ids.mutable_data_ptr<int64_t>());
    return of_ids;
  };
  label_bytes_ = {to_tensor(bytes.within), to_tensor(bytes.first)};
  return label_bytes_;
}

bool Job::load_from_memory() {
  if (!config_.checkpoint.non_persistent_save_interval || config_.data.eval_only) return false;
  launch::SnapshotSlots* const slots = launch::snapshot_slots(launch::SlotsOf::kRank);
  if (grid_.world.any(slots == nullptr)) {  // alike on all ranks, also where one machine has no such memory
    log_warning(
        "--non-persistent-save-interval: the state is kept on disk only. Memory that outlives the ranks is that of ",
        "`espalier launch`, where no limit on the size of files (ulimit -f) forbids it");
    return false;
  }
  snapshots_.emplace(snapshot_options(config_.checkpoint, *slots, grid_.rank), grid_.world,
                     tensors_to_save(state(), TiedCopies::kInclude));
  is_from_memory_ = load_newest_copy();
  if (!is_from_memory_) snapshots_->clear();
  snapshots_->replicate();
  if (grid_.device.is_cpu()) launch::offer_to_be_held();
  return is_from_memory_;
}

bool Job::load_newest_copy() {
  const std::optional<int64_t> step = snapshots_->newest();
  const bool goes_on = checkpoint_ && !is_pretrained_ && !begins_anew(config_);
  if (!step || (goes_on && *step < checkpoint_->state().step)) return false;
  store::TrainingState numbers;
  restore_tensors(state(), [&](const auto& requests) { numbers = snapshots_->load(*step, requests); });
  check_goes_on_from(numbers);
  restore_numbers(numbers, state());
  newest_saved_ = goes_on ? std::optional(checkpoint_->state().step) : std::nullopt;
  newest_before_ = newest_saved_.value_or(0);
  log_info("  going on from the copy of the state at iteration ", *step, " that the ranks before have left in memory");
  return true;
}

void Job::forget_copies() {
  if (snapshots_) snapshots_->clear();
}

// Whatever the command says of its beginning: what is in the folder of --save is this run's.
void Job::find_own_checkpoint() {
  const int64_t step = trainer_->position().step;
  const auto own = agree_on_step([&]() -> std::optional<store::StepEntry> {
    std::vector<store::StepEntry> complete = store::list_steps(config_.checkpoint.save).complete;
    std::erase_if(complete, [&](const store::StepEntry& entry) { return entry.step > step; });
    return complete.empty() ? std::nullopt : std::optional(complete.back());
  });
  loaded_ = own;  // not what the run was finetuned from: that step may not be saved here yet
  newest_saved_ = own ? std::optional(own->step) : std::nullopt;
  newest_before_ = std::max(newest_before_, newest_saved_.value_or(0));
}

void Job::check_goes_on_from(const store::TrainingState& saved) {
  Problems problems;
  const config::ResumeFlags flags{.overrides = config_.checkpoint.overrides,
                                  .override_lr_scheduler = false,
                                  .use_checkpoint_lr_scheduler = false,
                                  .finetune = false};
  const store::TrainingState present = training_state(state(), config_);
  config::check_order(saved, present, order_changes(saved), flags, problems);
  config::check_length_stages(config_, saved.consumed_train_samples, problems);
  problems.raise();
  for (const std::string& change : config::environment_changes(saved, present)) log_warning(change);
  for (const std::string& change : evaluation_changes(saved.evaluation_data, evaluation_data_)) log_warning(change);
}

void Job::load_or_initialize() {
  if (!checkpoint_ || is_pretrained_)
    params_->initialize(static_cast<uint64_t>(config_.training.seed),
                        [&](tensor::Param& param, const at::Tensor& fp32) { optimizer_->set_master(param, fp32); });
  if (is_pretrained_) return load_pretrained();
  if (!checkpoint_) return;
  const store::TrainingState& saved = checkpoint_->state();
  const bool finetune = begins_anew(config_);
  const bool weights_only = finetune || config_.checkpoint.no_load_optim;
  if (!finetune) check_goes_on_from(saved);
  const std::string& saved_type = checkpoint_->manifest().model.compute_type;
  const std::string present_type = plan::to_string(config_.training.precision);
  const bool same_type = saved_type == present_type;
  if (!same_type)
    log_info("the checkpoint was saved in ", saved_type, ": its fp32 weights are ",
             present_type == "fp32" ? "taken" : "rounded to " + present_type);
  const bool of_ema = config_.data.eval_only && config_.data.eval_ema;
  restore_tensors(*checkpoint_, state(),
                  of_ema         ? Restore::kEma
                  : weights_only ? Restore::kWeights
                  : same_type    ? Restore::kAll
                                 : Restore::kAllOfOtherType);
  if (!finetune) {
    store::TrainingState numbers = saved;
    if (saved_type != "fp16") {  // no loss scale was saved: keep that of a beginning
      const store::TrainingState fresh = run_numbers(state());
      numbers.loss_scale = fresh.loss_scale;
      numbers.loss_scale_growth_tracker = fresh.loss_scale_growth_tracker;
      numbers.loss_scale_hysteresis_tracker = fresh.loss_scale_hysteresis_tracker;
    }
    restore_numbers(numbers, state());
    if (weights_only) {
      dropped_moments_at_ = saved.step;
      optimizer_->set_num_steps(0);
      optimizer_->set_mean_state({});
    }
  }
  newest_saved_ = finetune ? std::nullopt : std::optional(saved.step);
  log_info("  successfully loaded checkpoint from ", loads_from(), " at iteration ", saved.step,
           config_.checkpoint.finetune ? " (weights only: --finetune starts at iteration 0)"
           : of_ema                    ? " (the moving average of the weights, to be evaluated)"
           : finetune                  ? " (weights only, to be evaluated)"
                                       : "");
}

void Job::close_checkpoint() {
  if (checkpoint_ && !is_pretrained_)
    ckpt::together(grid_.world, [&] {
      for (store::ExtraFile& file : kept_files(*checkpoint_, extra_files_)) extra_files_.push_back(std::move(file));
    });
  checkpoint_.reset();
}

// What an earlier attempt left after the step from which this one continues is set aside; another run's folder is
// refused.
void Job::prepare_save_folder() {
  // Step 0 is an imported checkpoint, which may lie where its run is to be.
  const bool goes_on = loaded_ && (!config_.checkpoint.finetune || loaded_->step == 0 || is_from_memory_);
  const store::Superseded aside =
      store::prepare_save_folder(config_.checkpoint.save, goes_on ? loaded_ : std::nullopt, trainer_->position().step);
  for (const std::string& name : aside.removed) log_info("removed what an interrupted save left: ", name);
  for (const std::string& name : aside.incomplete)
    log_warning("a step folder without a manifest was in the way of a later save: it is now ", name,
                ". Complete the copy and give it its name back if it should count.");
  const config::CheckpointConfig& from = config_.checkpoint;
  const bool is_start = !continues_own_run_ && !from.rolled_back_to;  // as the command says
  if (is_start && !begins_anew(config_)) store::remember_step_asked_for(from.load, from.ckpt_step, from.save);
  // Also weights that were drawn, of which no restart shall take a part.
  const bool begins = loaded_ ? !is_pretrained_ : from.finetune || from.no_load_optim;
  if (begins && is_start && !is_from_memory_ && !config_.data.eval_only)
    store::remember_beginning(config::beginning_of(config_), loaded_ ? loaded_->step : 0, from.save);
  if (aside.num_records > 0)
    log_info(aside.num_records, " records after step ", trainer_->position().step,
             " moved to metrics.superseded.jsonl");
}

JobState Job::state() {
  return {grid_, model_, *params_, *reducer_, *optimizer_, *lr_, trainer_->position(), trainer_->statistics()};
}

void Job::save() {
  const int64_t step = trainer_->position().step;
  if (!writer_ || saved_step_ == step) return;
  log_info("saving checkpoint at iteration ", format_printf("%7lld", static_cast<long long>(step)), " to ",
           config_.checkpoint.save);
  store::Manifest manifest;
  manifest.model = model_facts(config_);
  manifest.state = training_state(state(), config_);
  manifest.state.sample_order = sample_order_;
  manifest.state.evaluation_data = evaluation_data_;
  manifest.config = resolved_options_;
  writer_->save(manifest, tensors_to_save(state()));
  saving_ = true;
  saved_step_ = step;
}

void Job::before_change() {
  if (writer_) writer_->before_change();
}

bool Job::is_kept_in_memory(int64_t step) const {
  return snapshots_ && step % *config_.checkpoint.non_persistent_save_interval == 0;
}

void Job::settle_copies() {
  if (is_kept_in_memory(trainer_->position().step)) snapshots_->settle();
}

void Job::keep_in_memory() {
  const int64_t step = trainer_->position().step;
  if (!is_kept_in_memory(step)) return;
  const auto start = std::chrono::steady_clock::now();
  store::TrainingState numbers = training_state(state(), config_);
  numbers.sample_order = sample_order_;
  numbers.evaluation_data = evaluation_data_;
  snapshots_->keep(numbers, tensors_to_save(state(), TiedCopies::kInclude));
  if (std::exchange(said_copy_, true)) return;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  log_info("the state is copied into memory of the launcher: ", format_bytes(static_cast<double>(snapshots_->bytes())),
           " of each rank, in ", format_printf("%.1f ms", 1000 * seconds));
}

void Job::report_save(const ckpt::SaveReport& report) {
  newest_saved_ = report.step;
  log_info("  successfully saved checkpoint at iteration ", format_printf("%7lld", static_cast<long long>(report.step)),
           " to ", config_.checkpoint.save, " (", format_bytes(static_cast<double>(report.bytes)), " in ",
           format_duration(report.write_seconds), ", training paused for ", format_duration(report.stall_seconds), ")");
}

void Job::check_saving() {
  if (!writer_ || !saving_) return;
  try {
    writer_->check();
  } catch (...) {
    saving_ = false;
    throw;
  }
  const auto report = writer_->take_report();
  if (!report) return;
  saving_ = false;
  report_save(*report);
}

}  // namespace espalier::train
