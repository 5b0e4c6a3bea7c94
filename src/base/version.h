// The version of the programs; file formats have their own.
#pragma once

namespace espalier {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace espalier
