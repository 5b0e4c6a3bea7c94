// The running text of an article's wikitext.
//
// Templates, tables, references, comments, files and categories are left out; of links the text stays, of sections the
// titles. Nothing is expanded. One pass with a stack of the places in the output where what is open began.
#pragma once

#include <string>
#include <string_view>

namespace espalier::curate {

// `source` is valid UTF-8. False, and `reason` says why, where too much is open at once.
bool strip_wikitext(std::string_view source, std::string& text, std::string& reason);

}  // namespace espalier::curate
