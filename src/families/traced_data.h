// The training set of a run, opened to ask which documents its samples are made of; without torch.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "config/run_config.h"
#include "data/sample_source.h"
#include "text/tokenizer.h"

namespace espalier::families {

// Why the samples of these runs are not traced, by name; empty where open_traced() opens them.
std::string untraced(const config::RunConfig& run);

// What training reads: the same samples at the same numbers. `tokenizer` is called where ids of the vocabulary are part
// of how samples are made. CHECKs that the run is traced.
std::unique_ptr<const data::SampleSource> open_traced(
    const config::RunConfig& run, const std::function<std::unique_ptr<text::Tokenizer>()>& tokenizer);

// Each sample's hash of the run's records is of its ids and their last label alone (data/sample_hash.h), so that it can
// be had from these samples.
bool hashes_ids_alone(const config::RunConfig& run);

}  // namespace espalier::families
