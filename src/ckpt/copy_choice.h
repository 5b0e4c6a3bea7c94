// Which copies in memory ranks go on from: a function of what each of them has found, printed and tested without ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/snapshot_memory.h"

namespace espalier::ckpt {

// A copy in the slots of a rank: of the state that `identity` stands for, its own or another's.
struct HeldCopy {
  int64_t holder = 0;
  launch::SlotsOf slots = launch::SlotsOf::kRank;
  int slot = 0;
  int64_t step = 0;
  uint64_t identity = 0;

  bool operator==(const HeldCopy&) const = default;
};

struct CopyChoice {
  int64_t step = 0;
  std::vector<HeldCopy> of_ranks;  // where each rank takes its state from
};

// The newest step of which somebody holds a copy of every rank's state. `wanted`: what each rank's state is. A rank
// prefers its own copy, then what it holds for another, then that of the first rank that has one.
std::optional<CopyChoice> choose_copies(const std::vector<HeldCopy>& held, const std::vector<uint64_t>& wanted);

std::string to_text(const std::vector<HeldCopy>& copies);  // one line each
std::vector<HeldCopy> copies_from_text(const std::string& text);

}  // namespace espalier::ckpt
