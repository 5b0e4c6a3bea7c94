// How a run begins with the weights of another model: what both have is taken, the rest is drawn.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "ckpt/together.h"
#include "config/resume.h"
#include "families/registry.h"
#include "train/job.h"

namespace espalier::train {
namespace {

// Of what a family draws where the other model has none.
bool may_be_drawn(const std::string& name) {
  return name.find("_head.") != std::string::npos || name.starts_with("pooler.") ||
         name.find("projection_enc.") != std::string::npos;
}

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
    throw UserError(concat(config_.family->pretrained.option, " ", from, " holds no checkpoint"), ExitCode::kUsage);
  log_info(" loading pretrained weights from ", found);
  ckpt::together(grid_.world, [&] { checkpoint_.emplace(found); });
  is_pretrained_ = true;
  config_.vocabulary.padded_size = checkpoint_->manifest().model.padded_vocab_size;
  check_pretrained();
}

// The name that the checkpoint has for a parameter; the last that it may have, where it has none.
std::string Job::pretrained_name(const std::string& parameter) const {
  const config::Pretrained& from = config_.family->pretrained;
  if (from.names == nullptr) return parameter;
  const std::vector<std::string> names = from.names(parameter);
  const auto there = std::find_if(names.begin(), names.end(), [&](const auto& name) { return checkpoint_->has(name); });
  return there == names.end() ? names.back() : *there;
}

void Job::check_pretrained() const {
  const store::Manifest& manifest = checkpoint_->manifest();
  const std::string origin = concat(config_.family->pretrained.option, " ", config_.checkpoint.pretrained);
  Problems problems;
  bool lacks_pooler = false;
  for (const spec::ParamSpec& param : config::model_spec(config_).params) {
    const std::string name = pretrained_name(param.name);
    const store::StoredTensor* stored = manifest.find(name);
    if (stored == nullptr && may_be_drawn(param.name)) {
      lacks_pooler = lacks_pooler || param.name.starts_with("pooler.");
      continue;
    }
    if (stored == nullptr)
      problems.add(origin, " has no '", name, "'; give a BERT of these sizes (it holds a model of the family '",
                   manifest.model.family, "')");
    else if (stored->shape != param.shape)
      problems.add(origin, ": '", name, "' is ", shape_text(stored->shape), ", and ", shape_text(param.shape),
                   " by the options; give those that it was trained with");
  }
  if (lacks_pooler && problems.empty()) log_warning("the pretrained model has no pooler: one is drawn");
  const config::ResumeFlags flags{.overrides = config_.checkpoint.overrides,
                                  .override_lr_scheduler = false,
                                  .use_checkpoint_lr_scheduler = false,
                                  .finetune = true};
  config::check_tokenizer(manifest, extra_files_, flags, problems);
  problems.raise();
}

// What has one name in the other model, as the projections of two towers have, begins alike; so do the towers.
void Job::draw_alike(const std::vector<std::string>& drawn) {
  std::map<std::string, std::string> first_of;  // by the name there
  std::map<std::string, std::string> begins_as;
  for (const std::string& name : drawn)
    if (const auto [first, is_new] = first_of.emplace(pretrained_name(name), name); !is_new)
      begins_as.emplace(name, first->second);
  if (begins_as.empty()) return;
  std::map<std::string, at::Tensor> values;
  params_->initialize(static_cast<uint64_t>(config_.training.seed), [&](tensor::Param& param, const at::Tensor& fp32) {
    if (const auto first = first_of.find(pretrained_name(param.spec->name)); first != first_of.end())
      values.emplace(param.spec->name, fp32.clone());
  });
  for (tensor::Param& param : params_->params())
    if (const auto other = begins_as.find(param.spec->name); other != begins_as.end())
      optimizer_->set_master(param, values.at(other->second));
}

void Job::load_pretrained() {
  std::vector<std::string> drawn;
  for (const spec::ParamSpec& param : model_.params)
    if (!checkpoint_->has(pretrained_name(param.name))) drawn.push_back(param.name);
  draw_alike(drawn);
  restore_tensors(*checkpoint_, state(), Restore::kWeightsThere,
                  [this](const std::string& parameter) { return pretrained_name(parameter); });
  log_info("  successfully loaded pretrained weights of iteration ", checkpoint_->state().step,
           drawn.empty() ? "" : "; drawn: " + join(drawn, ", "));
}

}  // namespace espalier::train
