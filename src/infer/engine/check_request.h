// What the engine refuses, before anything of a request runs.
#pragma once

#include <cstdint>

#include "infer/engine/batch_model.h"
#include "infer/engine/request.h"

namespace espalier::infer {

struct RequestLimits {
  BatchModelShape shape;
  bool has_text = false;           // there is a tokenizer
  int64_t max_choices = 128;       // n, best_of, beam_width
  int64_t max_alternatives = 256;  // num_alternatives
};

// One UserError with all that is wrong.
void check_request(const Request& request, const RequestLimits& limits);

}  // namespace espalier::infer
