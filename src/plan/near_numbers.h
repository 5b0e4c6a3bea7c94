// Numbers that would do, for messages.
#pragma once

#include <cstdint>
#include <string>

namespace espalier::plan {

// "16 or 24": the multiples of `of` around `value`.
std::string multiples_near(int64_t value, int64_t of);
// "8 or 16": the divisors of `number` around `value`.
std::string divisors_near(int64_t value, int64_t number);

}  // namespace espalier::plan
