// What the suite tries a few times or over a few cases, and scripts/test --all over many.
#pragma once

#include <cstdlib>

namespace espalier::test {

inline bool long_version() { return std::getenv("ESPALIER_TEST_ALL") != nullptr; }

template <class T>
T in_suite_or_all(T in_suite, T all) {
  return long_version() ? all : in_suite;
}

}  // namespace espalier::test
