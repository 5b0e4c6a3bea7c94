#include "spec/optimizer.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "spec/optimizers/list.h"

namespace espalier::spec {
namespace {

constexpr double kFp32Bytes = 4;

template <class Optimizer>
OptimizerConstants constants_of(const OptimizerSettings& settings, const OptimizerStep& step) {
  const typename Optimizer::Constants numbers = Optimizer::constants(settings, step);
  OptimizerConstants constants;
  static_assert(sizeof(numbers) <= sizeof(constants));
  std::memcpy(constants.values, &numbers, sizeof(numbers));
  return constants;
}

template <class Optimizer>
OptimizerKind kind_of() {
  OptimizerKind kind{.type = Optimizer::kType,
                     .spellings = {std::begin(Optimizer::kSpellings), std::end(Optimizer::kSpellings)},
                     .is_variant = Optimizer::kIsVariant,
                     .averages = Optimizer::kAverages,
                     .second_pass = Optimizer::kSecondPass,
                     .width_rule = Optimizer::kWidthRule,
                     .options = {std::begin(Optimizer::kOptions), std::end(Optimizer::kOptions)},
                     .states = {},
                     .constants = constants_of<Optimizer>};
  for (int state = 0; state < Optimizer::kNumStates; ++state) kind.states.push_back(Optimizer::kStates[state]);
  return kind;
}

template <class... Optimizer>
std::vector<OptimizerKind> kinds_of(OptimizerList<Optimizer...>) {
  return {kind_of<Optimizer>()...};
}

std::vector<OptimizerKind> kinds_with_ema() {
  std::vector<OptimizerKind> kinds = kinds_of(Optimizers());
  for (OptimizerKind& kind : kinds) kind.keeps_ema = true;
  return kinds;
}

}  // namespace

bool OptimizerKind::reads(const std::string& option) const {
  return std::any_of(options.begin(), options.end(), [&](const char* one) { return option == one; });
}

bool OptimizerKind::has_state(const std::string& name) const {
  const std::vector<StateTensor> all = all_states();
  return std::any_of(all.begin(), all.end(), [&](const StateTensor& state) { return name == state.name; });
}

const OptimizerKind& OptimizerKind::of(const ParamSpec& param) const {
  return leaves_others_to_adamw() && param.matrices.empty() ? adamw() : *this;
}

OptimizerKind::ByWidth OptimizerKind::by_width(const ParamSpec& param) const {
  const bool is_matrix = !param.matrices.empty();
  if (is_matrix && width_rule == WidthRule::kMatricesLess) return {1 / param.width, 1 / param.width};
  if (!is_matrix && width_rule == WidthRule::kVectorsMore) return {param.width, 1};
  return {};
}

std::vector<StateTensor> OptimizerKind::all_states() const {
  std::vector<StateTensor> all = states;
  if (leaves_others_to_adamw()) all.insert(all.end(), adamw().states.begin(), adamw().states.end());
  if (keeps_ema) all.push_back(kEma);
  return all;
}

const std::vector<OptimizerKind>& optimizer_kinds() {
  static const std::vector<OptimizerKind> kinds = kinds_of(Optimizers());
  return kinds;
}

const OptimizerKind& adamw() { return optimizer_kind(OptimizerType::kAdam); }

const OptimizerKind& optimizer_kind(OptimizerType type) { return optimizer_kinds()[static_cast<size_t>(type)]; }

const OptimizerKind& optimizer_kind(const OptimizerSettings& settings) {
  const bool is_plain = settings.optimizer == OptimizerType::kSgd && settings.sgd_momentum == 0;
  const OptimizerType type = is_plain ? OptimizerType::kPlainSgd : settings.optimizer;
  static const std::vector<OptimizerKind> with_ema = kinds_with_ema();
  return settings.ema > 0 ? with_ema[static_cast<size_t>(type)] : optimizer_kind(type);
}

double optimizer_bytes(const OptimizerKind& kind, bool fp32_weights, double matrices) {
  const double own = kFp32Bytes * static_cast<double>(kind.states.size() + (fp32_weights && !kind.averages ? 0 : 1));
  const double updates =
      kind.leaves_others_to_adamw() ? matrices * own + (1 - matrices) * optimizer_bytes(adamw(), fp32_weights) : own;
  return updates + (kind.keeps_ema ? kFp32Bytes : 0);
}

}  // namespace espalier::spec
