// The steps of this folder, in the order of the help.
#include "curate/steps/steps.h"

namespace espalier::curate {

std::vector<StepKind> text_step_kinds() {
  return {
      {"length", "drop documents that are too short or too long", length_maker},
  };
}

}  // namespace espalier::curate
