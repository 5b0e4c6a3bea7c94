// The rendezvous store may be gone along with the machine that hosts it: a launcher goes on with its own ranks all the
// same.
#pragma once

#include "base/error.h"
#include "base/log.h"

namespace espalier::launch::internal {

template <class Tell>
void try_to_tell(const Tell& tell) {
  try {
    tell();
  } catch (const UserError& error) {
    warn_once(error.what());
  }
}

}  // namespace espalier::launch::internal
