// A language model without attention, as the example of a family (docs/design.md, "Adding a family"): layers of a norm
// and an MLP between a word embedding and an output layer that share their weights.
#pragma once

#include "config/family.h"
#include "models/build.h"

namespace espalier::test {

// What a program without torch needs: options, parameters, costs.
const config::Family& mlp_family();
// What training needs besides.
const models::FamilyRuntime& mlp_runtime();

}  // namespace espalier::test
