// How a run begins with the weights of another model: what both have is taken, the rest is drawn.
#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "ckpt/together.h"
#include "config/resume.h"
#include "families/registry.h"
#include "train/job.h"

namespace espalier::train {
namespace {

// Of what a family draws anew whatever it begins with.
bool is_head(const std::string& name) { return name.find("_head.") != std::string::npos; }

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t extent : shape) text += concat(text.empty() ? "" : " x ", extent);
  return text;
}

}  // namespace

void Job::find_pretrained() {
  const std::string& from = config_.checkpoint.pretrained;
  if (from.empty()) return;
  std::optional<store::StepEntry> entry;
  if (grid_.rank == 0) entry = store::find_checkpoint(from, std::nullopt, "");
  const std::string found = grid_.world.gather_texts(entry ? entry->folder.string() : "")[0];
  if (found.empty())  // on every rank alike
    throw UserError(concat("--pretrained-checkpoint ", from, " holds no checkpoint"), ExitCode::kUsage);
  log_info(" loading pretrained weights from ", found);
  ckpt::together(grid_.world, [&] { checkpoint_.emplace(found); });
  is_pretrained_ = true;
  config_.vocabulary.padded_size = checkpoint_->manifest().model.padded_vocab_size;
  check_pretrained();
}

void Job::check_pretrained() const {
  const store::Manifest& manifest = checkpoint_->manifest();
  Problems problems;
  const auto is_there = [&](const spec::ParamSpec& param) { return manifest.find(param.name) != nullptr; };
  const spec::ModelSpec model = config::model_spec(config_);
  for (const spec::ParamSpec& param : model.params) {
    const store::StoredTensor* stored = manifest.find(param.name);
    if (stored == nullptr && is_head(param.name)) continue;
    if (stored == nullptr && param.name.starts_with("pooler.")) continue;  // of a BERT without binary head: drawn
    if (stored == nullptr)
      problems.add("--pretrained-checkpoint ", config_.checkpoint.pretrained, " has no '", param.name,
                   "'; give a BERT of these sizes (it holds a model of the family '", manifest.model.family, "')");
    else if (stored->shape != param.shape)
      problems.add("--pretrained-checkpoint ", config_.checkpoint.pretrained, ": '", param.name, "' is ",
                   shape_text(stored->shape), ", and ", shape_text(param.shape),
                   " by the options; give those that it was trained with");
  }
  if (std::none_of(model.params.begin(), model.params.end(),
                   [&](const auto& param) { return param.name.starts_with("pooler.") && is_there(param); }) &&
      problems.empty())
    log_warning("the pretrained model has no pooler: one is initialized");
  const config::ResumeFlags flags{.overrides = config_.checkpoint.overrides,
                                  .override_lr_scheduler = false,
                                  .use_checkpoint_lr_scheduler = false,
                                  .finetune = true};
  config::check_tokenizer(manifest, extra_files_, flags, problems);
  problems.raise();
}

void Job::load_pretrained() {
  std::vector<std::string> drawn;
  for (const spec::ParamSpec& param : model_.params)
    if (!checkpoint_->has(param.name)) drawn.push_back(param.name);
  restore_tensors(*checkpoint_, state(), Restore::kWeightsThere);
  log_info("  successfully loaded pretrained weights of iteration ", checkpoint_->state().step,
           drawn.empty() ? "" : "; drawn: " + join(drawn, ", "));
  checkpoint_.reset();
}

}  // namespace espalier::train
