#include "spec/optimizer.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "spec/optimizers/list.h"
#include "spec/state_storage.h"

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
                     .estimates_curvature = Optimizer::kEstimatesCurvature,
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

// With one choice of how states are kept.
struct Keeping {
  bool ema = false;
  StateType first = StateType::kFp32, second = StateType::kFp32;
  auto operator<=>(const Keeping&) const = default;
};

std::vector<OptimizerKind> kinds_that_keep(const Keeping& keeping) {
  std::vector<OptimizerKind> kinds = kinds_of(Optimizers());
  for (OptimizerKind& kind : kinds) {
    kind.keeps_ema = keeping.ema;
    for (StateTensor& state : kind.states) {
      if (state.moment == StateTensor::Moment::kFirst) state.type = keeping.first;
      if (state.moment == StateTensor::Moment::kSecond) state.type = keeping.second;
    }
  }
  return kinds;
}

// Kinds live as long as the program.
const std::vector<OptimizerKind>& all_kinds(const Keeping& keeping) {
  static std::mutex mutex;
  static std::map<Keeping, std::vector<OptimizerKind>> tables;
  const std::lock_guard lock(mutex);
  const auto [table, is_new] = tables.try_emplace(keeping);
  if (is_new) {
    table->second = kinds_that_keep(keeping);
    const OptimizerKind& adam = table->second[static_cast<size_t>(OptimizerType::kAdam)];
    for (OptimizerKind& kind : table->second) kind.others = &adam;
  }
  return table->second;
}

OptimizerType type_of(const OptimizerSettings& settings) {
  switch (settings.optimizer) {
    case OptimizerType::kSgd: return settings.sgd_momentum == 0 ? OptimizerType::kPlainSgd : OptimizerType::kSgd;
    case OptimizerType::kAdam8bit: return OptimizerType::kAdam;
    case OptimizerType::kMuonClip: return OptimizerType::kMuon;
    default: return settings.optimizer;
  }
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
  return leaves_others_to_adamw() && param.matrices.empty() ? *others : *this;
}

OptimizerKind::ByWidth OptimizerKind::by_width(const ParamSpec& param) const {
  const bool is_matrix = !param.matrices.empty();
  if (is_matrix && width_rule == WidthRule::kMatricesLess) return {1 / param.width, 1 / param.width};
  if (!is_matrix && width_rule == WidthRule::kVectorsMore) return {param.width, 1};
  return {};
}

std::vector<StateTensor> OptimizerKind::all_states() const {
  std::vector<StateTensor> all = states;
  if (leaves_others_to_adamw()) all.insert(all.end(), others->states.begin(), others->states.end());
  if (keeps_ema) all.push_back(kEma);
  return all;
}

const std::vector<OptimizerKind>& optimizer_kinds() {
  static const std::vector<OptimizerKind>& kinds = all_kinds({});
  return kinds;
}

const OptimizerKind& adamw() { return optimizer_kind(OptimizerType::kAdam); }

const OptimizerKind& optimizer_kind(OptimizerType type) { return optimizer_kinds()[static_cast<size_t>(type)]; }

const OptimizerKind& optimizer_kind(const OptimizerSettings& settings) {
  Keeping keeping{.ema = settings.ema > 0, .first = settings.exp_avg_dtype, .second = settings.exp_avg_sq_dtype};
  if (settings.optimizer == OptimizerType::kAdam8bit) keeping.first = keeping.second = StateType::kFp8;
  return all_kinds(keeping)[static_cast<size_t>(type_of(settings))];
}

bool clips_logits(const OptimizerSettings& settings) {
  return settings.qk_clip || settings.optimizer == OptimizerType::kMuonClip;
}

double optimizer_bytes(const OptimizerKind& kind, bool fp32_weights, const ElementShares& shares) {
  double own = fp32_weights && !kind.averages ? 0 : kFp32Bytes;
  for (const StateTensor& state : kind.states)
    own += state.type == StateType::kFp8
               ? shares.blocks * stored_bytes(state.type) + (1 - shares.blocks) * stored_bytes(StateType::kFp32)
               : stored_bytes(state.type);
  const double updates =
      kind.leaves_others_to_adamw()
          ? shares.matrices * own + (1 - shares.matrices) * optimizer_bytes(*kind.others, fp32_weights, shares)
          : own;
  return updates + (kind.keeps_ema ? kFp32Bytes : 0);
}

}  // namespace espalier::spec
