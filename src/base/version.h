// The version of the programs, and what they were built with; file formats have versions of their own.
#pragma once

namespace espalier {

// Of the CMake project, which is the one place where it is written.
extern const char* const kVersion;

extern const char* const kCompiler;         // "GCC 12.2.0"
extern const char* const kBuildType;        // "Release"
extern const char* const kLibtorchVersion;  // of the headers that the engine was built with: "2.11.0"; "" if unknown

}  // namespace espalier
