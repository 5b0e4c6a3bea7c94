// Layouts that between them hold every pair of choices that can be together on 8 processes: tensor 1, 2, 4; context
// 1, 2; pipeline 1, 2, 4; data 1, 2, 4; two chunks a stage or one; sequence parallelism; zero-bubble; ZeRO 0 to 3; and
// each way of recomputing. layouts_test.cpp counts the pairs.
#pragma once

#include <array>
#include <string>

namespace espalier::test {

enum class RecomputeChoice { kNone, kUniform, kBlock, kDistributed };

struct LayoutChoice {
  const char* layout;
  RecomputeChoice recompute;
};

inline constexpr std::array<LayoutChoice, 20> kLayouts = {{
    {"tp2pp2dp2vp2spzero1", RecomputeChoice::kNone},    {"tp1cp2pp1dp1zero2", RecomputeChoice::kBlock},
    {"tp1pp2dp4zb", RecomputeChoice::kUniform},         {"tp4pp1dp2zero3", RecomputeChoice::kDistributed},
    {"tp2pp4dp1spzb", RecomputeChoice::kBlock},         {"tp1cp2pp4dp1vp2zero1", RecomputeChoice::kUniform},
    {"tp4cp2pp1dp1sp", RecomputeChoice::kNone},         {"tp2cp2pp2dp1zbzero1", RecomputeChoice::kDistributed},
    {"tp2pp1dp4spzero2", RecomputeChoice::kUniform},    {"tp1pp4dp2zb", RecomputeChoice::kNone},
    {"tp1cp2pp1dp4zero3", RecomputeChoice::kBlock},     {"tp4pp2dp1vp2sp", RecomputeChoice::kBlock},
    {"tp2cp2pp1dp2spzero3", RecomputeChoice::kUniform}, {"tp4pp1dp2zero1", RecomputeChoice::kBlock},
    {"tp4pp1dp2spzero2", RecomputeChoice::kNone},       {"tp1pp2dp4vp2zero1", RecomputeChoice::kNone},
    {"tp2pp4dp1vp2", RecomputeChoice::kDistributed},    {"tp4pp2dp1spzb", RecomputeChoice::kUniform},
    {"tp2cp2pp1dp1spzero3", RecomputeChoice::kNone},    {"tp2pp1dp4zero2", RecomputeChoice::kDistributed},
}};

}  // namespace espalier::test
