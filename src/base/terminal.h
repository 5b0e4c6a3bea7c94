// How wide the terminal is, and what fits it.
#pragma once

#include <cstddef>
#include <string>

namespace espalier {

// Columns of the terminal that stderr is, at this moment; 80 where they are not known.
size_t terminal_columns();

// The text cut to `columns`, with "..." where something is missing. Characters that may be wide count as two.
std::string fit_columns(const std::string& text, size_t columns);

}  // namespace espalier
