#include "plan/near_numbers.h"

#include <algorithm>

#include "base/format.h"

namespace espalier::plan {

std::string multiples_near(int64_t value, int64_t of) {
  const int64_t below = value / of * of;
  if (below == 0) return concat(of);
  return concat(below, " or ", below + of);
}

std::string divisors_near(int64_t value, int64_t number) {
  int64_t below = 0, above = 0;
  const auto consider = [&](int64_t divisor) {
    if (divisor <= value) below = std::max(below, divisor);
    if (divisor > value && (above == 0 || divisor < above)) above = divisor;
  };
  for (int64_t divisor = 1; divisor * divisor <= number; ++divisor) {
    if (number % divisor != 0) continue;
    consider(divisor);
    consider(number / divisor);
  }
  if (below == 0 || above == 0) return concat(below + above);
  return concat(below, " or ", above);
}

}  // namespace espalier::plan
