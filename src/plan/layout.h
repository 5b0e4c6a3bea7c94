// A layout in one word, as `espalier parity --layouts` takes it: "tp2pp2dp1sp", "pp2vp2", "dp4zero1", "tp2cp2",
// "pp4zb".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/grid.h"

namespace espalier::plan {

struct Layout {
  spec::GridShape grid;
  int64_t num_chunks = 1;          // vpN: N chunks a pipeline stage, interleaved
  int64_t zero_stage = 0;          // zeroN
  bool sequence_parallel = false;  // sp
  bool zero_bubble = false;        // zb
  bool operator==(const Layout&) const = default;
};

// Parts in any order, each at most once; sizes that are not named are 1. UserError names the part that is wrong.
Layout parse_layout(const std::string& text);
// "tp2pp1dp2sp"; parse_layout reads it back.
std::string to_string(const Layout& layout);

// The layout as flags of `espalier train gpt`, to go after those of the run. UserError where the layers do not divide
// into the chunks.
std::vector<std::string> layout_flags(const Layout& layout, int64_t num_layers);

}  // namespace espalier::plan
