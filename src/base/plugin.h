// Shared libraries that lie beside the program and are loaded when they are first needed, so that programs start
// without what those pull in. Each offers a table of functions through one C function, and begins it with the number of
// its interface (an int64_t).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace espalier {

struct Plugin {
  std::filesystem::path file;
  const char* function;       // that returns the table
  int64_t interface_version;  // that this program was built for
  const char* missing;        // what the message says where there is no file: what it holds, how to get it
  const char* unloadable;     // what it says where the file cannot be loaded: what that needs
};

std::filesystem::path beside_program(const std::string& name);

// The table, which stays loaded. A UserError names a file that is missing, cannot be loaded, or belongs to another
// build.
const void* load_plugin(const Plugin& plugin);

}  // namespace espalier
