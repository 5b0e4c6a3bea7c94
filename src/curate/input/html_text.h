// The text that the readers of a web page come for, by libgumbo.
//
// Menus, forms, scripts and what pages call header, footer, nav and aside are left out; of a page with <main> or
// <article>, only these are read. Of what is left, blocks that are mostly links go. A block is a line; paragraphs,
// headings and the like are separated by an empty line.
#pragma once

#include <string>
#include <string_view>

namespace espalier::curate {

struct HtmlPage {
  std::string title, text;
};

// False, and `reason` says why, for what would take too long or is in an unsupported encoding. `charset` is what
// HTTP said, if anything; else the page's own declaration counts, else UTF-8.
bool read_html(std::string_view html, std::string charset, HtmlPage& page, std::string& reason);

}  // namespace espalier::curate
