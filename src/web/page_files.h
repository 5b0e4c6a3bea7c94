// The files of src/web/page/, by name, as they are at build time.
#pragma once

#include <map>
#include <string>

namespace espalier::web {

const std::map<std::string, std::string>& page_files();

}  // namespace espalier::web
