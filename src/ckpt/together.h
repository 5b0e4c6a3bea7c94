// What fails on one rank fails on all.
#pragma once

#include <functional>

#include "dist/group.h"

namespace espalier::ckpt {

// Runs `action` on every rank. What a rank throws (UserError) is thrown on all, each message once, as a
// DamagedCheckpoint where it is one on any rank. Collective; `action` calls nothing that is.
void together(const dist::Group& group, const std::function<void()>& action);

}  // namespace espalier::ckpt
