// What `espalier checkpoint inspect` prints for people.
#pragma once

#include <filesystem>
#include <string>

#include "store/manifest.h"
#include "store/run_folder.h"

namespace espalier {

// `listing` is of the run folder that was asked for; empty for a step folder.
std::string describe_checkpoint(const std::filesystem::path& folder, const store::Manifest& manifest,
                                const store::RunListing& listing);

}  // namespace espalier
