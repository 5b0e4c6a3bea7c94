#pragma once

#include "models/probe.h"

namespace espalier::models {

// Inputs: "ids" of the encoder, "decoder_ids". Outputs: "logits" after each of the latter.
extern const Probe kT5Probe;

}  // namespace espalier::models
