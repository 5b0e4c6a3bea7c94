// The passages beside what `espalier serve` answers: an index, its encoder, and the texts.
#pragma once

#include <memory>

#include "apps/options/serve_options.h"
#include "serve/desk.h"

namespace espalier {

// Null where the options name no index. UserErrors: an index, encoder and passages that do not belong together. The
// passages stay in memory, the index is mapped.
serve::FindPassages passage_finder(const ServeOptions& options);

}  // namespace espalier
