// The files of src/serve/playground/, by name, as they are at build time: the page that `serve` shows at /.
#pragma once

#include <map>
#include <string>

namespace espalier::serve {

const std::map<std::string, std::string>& playground_files();

}  // namespace espalier::serve
