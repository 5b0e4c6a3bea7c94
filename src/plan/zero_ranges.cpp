#include "plan/zero_ranges.h"

#include <algorithm>

#include "base/error.h"

namespace espalier::plan {
namespace {

using spec::FlatSection;

bool exchanged_alike(const FlatSection& a, const FlatSection& b) {
  return a.is_shared == b.is_shared && a.stages == b.stages && a.replicated == b.replicated &&
         a.use_is_split == b.use_is_split;
}

// The sections as units; neighbours that are exchanged alike as one, if `joined`.
std::vector<ZeroUnit> section_units(const std::vector<FlatSection>& sections, bool joined) {
  std::vector<ZeroUnit> units;
  for (size_t i = 0; i < sections.size(); ++i) {
    const FlatSection& section = sections[i];
    if (joined && i > 0 && exchanged_alike(sections[i - 1], section))
      units.back().end = section.end;
    else
      units.push_back({.replicated = section.replicated,
                       .use_is_split = section.use_is_split,
                       .stages = section.stages,
                       .section = i,
                       .begin = section.begin,
                       .end = section.end});
  }
  return units;
}

}  // namespace

std::vector<ZeroUnit> zero_units(const spec::FlatLayout& layout, const ZeroShape& shape) {
  const int64_t multiple = spec::kFlatAlignment * (shape.stage == ZeroStage::kNone ? 1 : shape.num_ranks);
  const int64_t largest = std::max(multiple, shape.unit_elements / multiple * multiple);
  const bool by_section = shape.stage >= ZeroStage::kGradients;
  std::vector<ZeroUnit> units;
  for (ZeroUnit unit : section_units(layout.sections, !by_section)) {
    ESPALIER_CHECK(unit.count() % multiple == 0, unit.count(), " elements cannot be shared by ", shape.num_ranks,
                   " ranks: lay the parameters out for them");
    const int64_t end = unit.end, step = by_section ? unit.count() : largest;
    for (; unit.begin < end; unit.begin = unit.end) {
      unit.end = std::min(end, unit.begin + step);
      units.push_back(unit);
    }
  }
  return units;
}

spec::IndexRange zero_part(const ZeroUnit& unit, const ZeroShape& shape, int64_t rank) {
  if (shape.stage == ZeroStage::kNone) return {unit.begin, unit.end};
  const int64_t count = unit.count() / shape.num_ranks;
  return {unit.begin + rank * count, unit.begin + (rank + 1) * count};
}

int64_t zero_shard_size(const spec::FlatLayout& layout, const ZeroShape& shape) {
  return shape.stage == ZeroStage::kNone ? layout.size : layout.size / shape.num_ranks;
}

std::vector<ZeroPiece> zero_pieces(const spec::FlatLayout& layout, const ZeroShape& shape, int64_t rank) {
  const std::vector<ZeroUnit> units = zero_units(layout, shape);
  const int64_t num_owners = shape.stage == ZeroStage::kNone ? 1 : shape.num_ranks;
  std::vector<ZeroPiece> pieces;
  for (size_t param = 0; param < layout.offsets.size(); ++param) {
    const int64_t offset = layout.offsets[param], count = layout.counts[param];
    auto unit = std::partition_point(units.begin(), units.end(), [&](const ZeroUnit& u) { return u.end <= offset; });
    for (; unit != units.end() && unit->begin < offset + count; ++unit) {
      const spec::IndexRange part = zero_part(*unit, shape, rank);
      const int64_t begin = std::max(offset, part.begin), end = std::min(offset + count, part.end);
      if (begin >= end) continue;
      // The parts of the units before this one have unit->begin / num_owners elements.
      const ZeroPiece piece{static_cast<int64_t>(param), begin - offset, unit->begin / num_owners + begin - part.begin,
                            end - begin};
      ZeroPiece* const last = pieces.empty() ? nullptr : &pieces.back();
      if (last != nullptr && last->param == piece.param && last->param_begin + last->count == piece.param_begin &&
          last->shard_begin + last->count == piece.shard_begin)
        last->count += piece.count;
      else
        pieces.push_back(piece);
    }
  }
  return pieces;
}

}  // namespace espalier::plan
