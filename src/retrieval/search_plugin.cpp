#include "retrieval/search_plugin.h"

#include "base/plugin.h"

namespace espalier::retrieval {

std::filesystem::path search_plugin_path() { return beside_program("libespalier_search.so"); }

const SearchTable& load_search_plugin(const std::filesystem::path& path) {
  return *static_cast<const SearchTable*>(
      load_plugin({path, "espalier_search_table", kSearchInterface,
                   "it holds the search and belongs next to the program. 'scripts/setup' builds it.",
                   "It needs BLAS and LAPACK: Debian's packages libblas3 and liblapack3, or libopenblas0."}));
}

}  // namespace espalier::retrieval
