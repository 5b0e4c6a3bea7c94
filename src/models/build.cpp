#include "models/build.h"

#include <vector>

#include "base/error.h"
#include "models/gpt/model.h"

namespace espalier::models {

const FamilyRuntime& runtime_of(const config::Family& family) {
  static const std::vector<const FamilyRuntime*> runtimes = {
      &gpt_runtime(),
  };
  for (const FamilyRuntime* runtime : runtimes)
    if (runtime->family == &family) return *runtime;
  ESPALIER_CHECK(false, "no runtime for the family ", family.name);
  return *runtimes.front();
}

}  // namespace espalier::models
