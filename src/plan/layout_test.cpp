#include "plan/layout.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/format.h"

namespace espalier::plan {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_layout(text);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "accepted";
}

TEST(Layout, PartsAreRead) {
  EXPECT_EQ(parse_layout("tp1pp1dp1"), Layout{});
  EXPECT_EQ(parse_layout("tp2pp1dp2sp"), (Layout{.grid = {.tensor = 2, .data = 2}, .sequence_parallel = true}));
  EXPECT_EQ(parse_layout("pp2vp3"), (Layout{.grid = {.pipeline = 2}, .num_chunks = 3}));
  EXPECT_EQ(parse_layout("dp4zero1"), (Layout{.grid = {.data = 4}, .zero_stage = 1}));
  EXPECT_EQ(
      parse_layout("sptp2cp2zbpp2"),
      (Layout{.grid = {.tensor = 2, .context = 2, .pipeline = 2}, .sequence_parallel = true, .zero_bubble = true}));
}

TEST(Layout, NamesReadBack) {
  for (const char* name :
       {"tp1pp1dp1", "tp2cp2pp2dp2sp", "tp1pp2dp1vp2", "tp1pp4dp1zb", "tp2pp1dp3spzero2", "tp1pp2dp2zbzero1"})
    EXPECT_EQ(to_string(parse_layout(name)), name);
}

TEST(Layout, WhatIsNoLayoutIsNamed) {
  const std::string parts = "; parts are tpN, cpN, ppN, dpN, vpN, zero0 to zero3, sp, zb, as in tp2pp1dp2sp";
  EXPECT_EQ(refusal(""), "layout '': '' is empty" + parts);
  EXPECT_EQ(refusal("tp2xp3"), "layout 'tp2xp3': 'xp3' is not part of a layout" + parts);
  EXPECT_EQ(refusal("tp2tp2"), "layout 'tp2tp2': 'tp2' comes twice" + parts);
  EXPECT_EQ(refusal("tp"), "layout 'tp': 'tp' needs a size from 1 to 1000000" + parts);
  EXPECT_EQ(refusal("dp0"), "layout 'dp0': 'dp0' needs a size from 1 to 1000000" + parts);
  EXPECT_EQ(refusal("zero4"), "layout 'zero4': 'zero4' needs a stage from 0 to 3" + parts);
  EXPECT_EQ(refusal("2"), "layout '2': '2' is not part of a layout" + parts);
}

TEST(Layout, FlagsAreThoseOfTraining) {
  EXPECT_EQ(join(layout_flags(parse_layout("tp2pp2dp3vp2spzero1"), 8), " "),
            "--tensor-model-parallel-size 2 --context-parallel-size 1 --pipeline-model-parallel-size 2 --zero-stage 1 "
            "--sequence-parallel --num-layers-per-virtual-pipeline-stage 2");
  try {
    layout_flags(parse_layout("pp2vp3"), 8);
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "layout 'tp1pp2dp1vp3': 8 layers do not divide into 2 stages of 3 chunks; use 6 or 12 layers");
  }
}

}  // namespace
}  // namespace espalier::plan
