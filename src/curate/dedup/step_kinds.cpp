// The steps of this folder, in the order of the help.
#include "curate/step.h"

namespace espalier::curate {

std::vector<StepKind> dedup_step_kinds() { return {}; }

}  // namespace espalier::curate
