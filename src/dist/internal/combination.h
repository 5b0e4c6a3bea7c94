// What several ranks hold of the same elements, combined in the order of the ranks whatever rank computes it: a sum of
// half-precision numbers in fp32, rounded once.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

namespace espalier::dist {

class Combination {
 public:
  enum class Kind { kSum, kMax };

  Combination(Kind kind, at::ScalarType type) : kind_(kind), type_(type) {}

  const char* name() const { return kind_ == Kind::kSum ? " SUM" : " MAX"; }

  // `count` elements each. `result` may be the memory of source number `source` only if allows_in_place(source).
  void run(const std::vector<const void*>& sources, void* result, int64_t count) const;
  bool allows_in_place(int64_t source) const { return source < 2 || widens(); }

 private:
  bool widens() const { return type_ == at::kBFloat16 || type_ == at::kHalf; }

  Kind kind_;
  at::ScalarType type_;
};

}  // namespace espalier::dist
