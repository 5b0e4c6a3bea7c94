// Noticing at the start that a run's folder is not the same one on all machines.
#pragma once

#include <filesystem>

#include "dist/group.h"

namespace espalier::dist {

// Rank 0 leaves a file with a random name in `folder` (which exists there) and the others look for it, for up to
// `patience_seconds` because network folders show new files late. UserError on every rank if one does not see it; it
// names the machines. Collective.
void check_folder_is_shared(const std::filesystem::path& folder, const Group& world, double patience_seconds = 10);

}  // namespace espalier::dist
