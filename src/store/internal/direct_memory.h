// Memory that is read into and written from past the page cache: aligned for O_DIRECT, and on huge pages where the
// system has them. On small ones a request to the disk is cut into as many as there are pages to name: half the rate.
#pragma once

#include <cstdint>
#include <memory>

namespace espalier::store {

struct FreeDirectMemory {
  void operator()(char* memory) const;
};
using DirectMemory = std::unique_ptr<char, FreeDirectMemory>;

// Values not set; std::bad_alloc where there is too little. `bytes` is a multiple of 2 MiB, a huge page.
DirectMemory make_direct_memory(int64_t bytes);

}  // namespace espalier::store
