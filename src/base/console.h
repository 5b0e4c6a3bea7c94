// What stdout and stderr are shown on: how wide it is, and whether it takes colours.
#pragma once

#include <cstddef>
#include <string>

namespace espalier {

enum class Stream { kOutput, kError };  // stdout, stderr

// A terminal that understands escape sequences (not TERM=dumb).
bool is_terminal(Stream stream);

// NO_COLOR (set, not empty) forbids, then CLICOLOR_FORCE (set, not 0) demands; else on a terminal.
bool shows_colours(Stream stream);

// Columns of the terminal; `otherwise` where there is none.
int terminal_width(Stream stream, int otherwise = 100);

enum class Style { kBold, kRed, kYellow, kGreen, kFaint };

// The text in that style where the stream shows colours; else as it is.
std::string styled(Stream stream, Style style, const std::string& text);

// Columns that the text takes: of UTF-8, two for the wide characters of East Asia, none for combining marks.
size_t display_width(const std::string& text);

// A text for people: lines of at most `width` columns, broken at blanks, or after | , / where one word is longer.
// The first begins in column `column`, the others after `indent` blanks.
std::string wrap_text(const std::string& text, size_t column, size_t indent, size_t width);

// For lines that are written over: columns of the terminal that stderr is, at this moment; else COLUMNS, else 80.
size_t terminal_columns();

// The text cut to `columns`, with "..." where something is missing. Characters that may be wide count as two.
std::string fit_columns(const std::string& text, size_t columns);

}  // namespace espalier
