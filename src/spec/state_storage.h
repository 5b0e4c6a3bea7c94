// In which type and shape the optimizer keeps a state of a parameter (spec/stored_state.h), as pure functions of both:
// the same in every layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/optimizer.h"
#include "spec/shard.h"

namespace espalier::spec {

// What the run asks for, but fp32 where 8-bit blocks do not fit: vectors, and matrices whose rows are not a multiple of
// kMomentBlock elements.
StateType stored_type(const StateTensor& state, const ParamSpec& param);
bool fits_moment_blocks(const ParamSpec& param);

// Of a state of elements of that shape, global or local: as it is, but with 8-bit blocks bytes in the last dimension.
std::vector<int64_t> stored_shape(StateType type, std::vector<int64_t> shape);
int64_t stored_count(StateType type, int64_t num_elements);
// Runs of elements as runs of what is stored.
std::vector<Extent> stored_extents(StateType type, std::vector<Extent> extents);
double stored_bytes(StateType type);  // of an element

// Whether so many tensor ranks divide rows of the parameter within a block of kMomentBlock elements.
bool cuts_moment_blocks(const ParamSpec& param, int64_t tensor_size);
// The names of the parameters whose 8-bit blocks they would cut.
std::vector<std::string> cut_moment_blocks(const OptimizerKind& kind, const std::vector<ParamSpec>& params,
                                           int64_t tensor_size);

// Between fp32 and what is stored, rounded to the nearest; `num_elements` of whole blocks.
void widen_state(StateType type, StateTensor::Moment moment, const void* stored, int64_t num_elements, float* values);
void narrow_state(StateType type, StateTensor::Moment moment, const float* values, int64_t num_elements, void* stored);

}  // namespace espalier::spec
