// Memory for arrays that are read and written in no order: on huge pages where the system has them, since on small ones
// nearly every access waits for the translation of its address too.
#pragma once

#include <cstddef>
#include <memory>

namespace espalier::data::internal {

// Values not set; std::bad_alloc where there is too little.
std::shared_ptr<void> large_memory(size_t bytes);

}  // namespace espalier::data::internal
