#pragma once

#include "models/probe.h"

namespace espalier::models {

// Inputs: "ids". Outputs: "logits".
extern const Probe kGptProbe;

}  // namespace espalier::models
