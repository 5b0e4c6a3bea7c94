#include "base/plugin.h"

#include <dlfcn.h>

#include "base/error.h"

namespace espalier {

std::filesystem::path beside_program(const std::string& name) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
}

const void* load_plugin(const Plugin& plugin) {
  const std::string file = "'" + plugin.file.string() + "'";
  if (!std::filesystem::exists(plugin.file))
    throw UserError(concat(file, " does not exist: ", plugin.missing), ExitCode::kMissingInput);
  void* const library = ::dlopen(plugin.file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    throw UserError(
        concat("cannot load ", file, ": ", reason != nullptr ? reason : "unknown error", "\n", plugin.unloadable));
  }
  auto* const table_of = reinterpret_cast<const void* (*)()>(::dlsym(library, plugin.function));
  const void* const table = table_of == nullptr ? nullptr : table_of();
  const int64_t version = table == nullptr ? 0 : *static_cast<const int64_t*>(table);
  if (version != plugin.interface_version)
    throw UserError(concat(file, " has interface ", version, ", this program wants ", plugin.interface_version,
                           ": they were not built together. Build both."));
  return table;
}

}  // namespace espalier
