// Character references of HTML in plain text ("&eacute;", "&#233;", and "&EACUTE;", which HTML does not have).
#pragma once

#include <string>
#include <string_view>

namespace espalier::curate {

// Those that end in a semicolon; what is none stays.
std::u32string unescape_html(std::u32string_view text);

}  // namespace espalier::curate
