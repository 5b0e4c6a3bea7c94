#include "curate/step.h"

namespace espalier::curate {

const std::vector<StepKind>& step_kinds() {
  static const std::vector<StepKind> kinds = [] {
    std::vector<StepKind> all = text_step_kinds();
    for (const StepKind& kind : dedup_step_kinds()) all.push_back(kind);
    return all;
  }();
  return kinds;
}

const StepKind* find_step_kind(std::string_view name) {
  for (const StepKind& kind : step_kinds())
    if (name == kind.name) return &kind;
  return nullptr;
}

}  // namespace espalier::curate
