// Numbers as people read them, and the nearest name to a misspelt one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace espalier {

std::string format_count(int64_t value);                             // 1204113 -> "1,204,113"
std::string format_counted(int64_t count, const std::string& noun);  // 1, "line" -> "1 line"; 1204 -> "1,204 lines"
std::string format_bytes(double bytes);                              // 3221225472 -> "3.00 GiB"
// "1.5GiB", "512 MiB", "80GB" (10^9), "1048576": whole bytes, at least 0. Nothing when the text is not an amount.
std::optional<int64_t> parse_bytes(const std::string& text);
std::string format_duration(double seconds);           // 3725 -> "1 h 02 min", 42.3 -> "42 s", 0.31 -> "0.31 s"
std::string format_fixed(double value, int decimals);  // printf's %.<decimals>f
std::string format_printf(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Shortest decimal text that reads back to the same double ("0.1", "1e-05").
std::string format_shortest(double value);

std::vector<std::string> split(const std::string& text, char separator);  // keeps empty fields
std::vector<std::string> split_blanks(const std::string& text);           // drops empty fields
std::string strip(const std::string& text);                               // without blanks at both ends
std::string join(const std::vector<std::string>& parts, const std::string& separator);

// Damerau-Levenshtein distance (insert, delete, substitute, transpose neighbours).
int edit_distance(const std::string& a, const std::string& b);

// Up to `limit` of `candidates` within `max_distance` of `word`, nearest first.
std::vector<std::string> nearest_names(const std::string& word, const std::vector<std::string>& candidates,
                                       int max_distance = 2, size_t limit = 3);

}  // namespace espalier
