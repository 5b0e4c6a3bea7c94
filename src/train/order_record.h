// What a checkpoint holds of the data that its run has read and would read, beside data::OrderFingerprint: of the sets
// for evaluation, and as checkpoints of earlier versions hold it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/sample_source.h"
#include "train/loader.h"

namespace espalier::train {

// store::TrainingState::evaluation_data of these loaders.
std::string evaluation_data(const std::vector<const std::vector<Loader>*>& groups);

// One line for each set for evaluation, of those that there were and are, that holds something else now.
std::vector<std::string> evaluation_changes(const std::string& saved, const std::string& present);

// What checkpoints held before data::OrderFingerprint: a hash of some of the samples before and after position
// `consumed`.
std::string old_order_fingerprint(const data::SampleSource& source, int64_t consumed);

}  // namespace espalier::train
