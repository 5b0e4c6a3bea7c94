#include "retrieval/search_plugin.h"

#include <dlfcn.h>

#include "base/error.h"

namespace espalier::retrieval {

std::filesystem::path search_plugin_path() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "libespalier_search.so";
}

const SearchTable& load_search_plugin(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path))
    throw UserError(concat("'", path.string(), "' does not exist: it holds the search and lies beside the program. ",
                           "'scripts/setup' builds it."),
                    ExitCode::kMissingInput);
  void* const plugin = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (plugin == nullptr) {
    const char* const reason = ::dlerror();
    throw UserError(concat("cannot load '", path.string(), "': ", reason != nullptr ? reason : "unknown error",
                           "\nIt needs BLAS and LAPACK: Debian's packages libblas3 and liblapack3, or libopenblas0."));
  }
  auto* const table = reinterpret_cast<const SearchTable* (*)()>(::dlsym(plugin, "espalier_search_table"));
  if (table == nullptr || table()->interface_version != kSearchInterface)
    throw UserError(concat("'", path.string(), "' has interface ", table == nullptr ? 0 : table()->interface_version,
                           ", this program wants ", kSearchInterface, ": they were not built together. Build both."));
  return *table();
}

}  // namespace espalier::retrieval
