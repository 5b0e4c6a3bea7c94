#include "base/format.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>

namespace espalier {

std::string format_printf(const char* format, ...) {
  va_list arguments, again;
  va_start(arguments, format);
  va_copy(again, arguments);
  std::string text(static_cast<size_t>(std::vsnprintf(nullptr, 0, format, arguments)), '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  va_end(arguments);
  return text;
}

std::string format_count(int64_t value) {
  std::string digits = std::to_string(value);
  const size_t first = value < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) digits.insert(at -= 3, ",");
  return digits;
}

std::string format_counted(int64_t count, const std::string& noun) {
  return format_count(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string format_bytes(double bytes) {
  static const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  int unit = 0;
  while (std::abs(bytes) >= 1024 && unit < 5) bytes /= 1024, ++unit;
  return format_printf(unit == 0 ? "%.0f %s" : "%.2f %s", bytes, units[unit]);
}

std::optional<int64_t> parse_bytes(const std::string& text) {
  constexpr std::pair<const char*, double> kUnits[] = {
      {"", 1},      {"B", 1},        {"KB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double amount = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, amount, std::chars_format::fixed);
  if (error != std::errc() || !(amount >= 0)) return std::nullopt;
  const std::string unit = strip(std::string(rest, end));
  for (const auto& [name, bytes] : kUnits) {
    if (unit == name && amount * bytes < 0x1p63) return static_cast<int64_t>(amount * bytes);
  }
  return std::nullopt;
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  if (seconds < 10) return format_printf("%.2f s", seconds);
  const int64_t whole = std::llround(seconds);
  if (whole < 60) return format_printf("%lld s", static_cast<long long>(whole));
  if (whole < 3600)
    return format_printf("%lld min %02lld s", static_cast<long long>(whole / 60), static_cast<long long>(whole % 60));
  const int64_t hours = whole / 3600;
  if (hours < 48)
    return format_printf("%lld h %02lld min", static_cast<long long>(hours), static_cast<long long>(whole / 60 % 60));
  return format_printf("%lld d %02lld h", static_cast<long long>(hours / 24), static_cast<long long>(hours % 24));
}

std::string format_fixed(double value, int decimals) { return format_printf("%.*f", decimals, value); }

std::string format_shortest(double value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, result.ptr);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(separator, begin)) != std::string::npos; begin = end + 1)
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

std::vector<std::string> split_blanks(const std::string& text) {
  static const char* const blanks = " \t\r\n\v\f";
  std::vector<std::string> parts;
  for (size_t begin = text.find_first_not_of(blanks); begin != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(blanks, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = text.find_first_not_of(blanks, end);
  }
  return parts;
}

std::string strip(const std::string& text) {
  static const char* const blanks = " \t\r\n\v\f";
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

std::string join(const std::vector<std::string>& parts, const std::string& separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

int edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<int>> cost(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        cost[i][j] = static_cast<int>(i + j);
        continue;
      }
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, cost[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

namespace {
bool is_same_but_for_capitals(const std::string& a, const std::string& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}
}  // namespace

std::vector<std::string> nearest_names(const std::string& word, const std::vector<std::string>& candidates,
                                       int max_distance, size_t limit) {
  std::vector<std::pair<int, std::string>> near;
  for (const std::string& candidate : candidates) {
    // Capitals alone are one change, however many they are.
    const int distance = is_same_but_for_capitals(word, candidate) ? 1 : edit_distance(word, candidate);
    // In a short word two changes leave nothing that is like it.
    const int most = std::min(max_distance, static_cast<int>(std::min(word.size(), candidate.size())) / 3);
    if (distance <= std::max(1, most)) near.emplace_back(distance, candidate);
  }
  std::sort(near.begin(), near.end());
  std::vector<std::string> names;
  for (const auto& entry : near)
    if (names.size() < limit) names.push_back(entry.second);
  return names;
}

}  // namespace espalier
