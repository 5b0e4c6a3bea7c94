#include "models/build.h"

#include <vector>

#include "base/error.h"
#include "families/registry.h"
#include "models/bert/model.h"
#include "models/bert_task/model.h"
#include "models/gpt/model.h"
#include "models/ict/model.h"
#include "models/ict_task/model.h"
#include "models/retro/model.h"
#include "models/t5/model.h"

namespace espalier::models {
namespace {

std::vector<const FamilyRuntime*>& runtimes() {
  static std::vector<const FamilyRuntime*> all = {
      &gpt_runtime(), &bert_runtime(),     &t5_runtime(),    &bert_task_runtime(),
      &ict_runtime(), &ict_task_runtime(), &retro_runtime(),
  };
  return all;
}

}  // namespace

void add_runtime(const FamilyRuntime& runtime) {
  families::add_family(*runtime.family);
  runtimes().push_back(&runtime);
}

const FamilyRuntime& runtime_of(const config::Family& family) {
  for (const FamilyRuntime* runtime : runtimes())
    if (runtime->family == &family) return *runtime;
  ESPALIER_CHECK(false, "no runtime for the family ", family.name);
  return *runtimes().front();
}

}  // namespace espalier::models
