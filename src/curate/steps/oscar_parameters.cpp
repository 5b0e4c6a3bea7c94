#include "curate/steps/oscar_filters.h"

namespace espalier::curate {
namespace {

struct OscarRow {
  const char* language;
  OscarParameters parameters;
};

// In the order of OscarParameters.
// clang-format off
const std::vector<OscarRow>& oscar_rows() {
  static const std::vector<OscarRow> rows = {
      {"default", {false, false, 50, false, 10, 100000, 10, 0.2, 5, 0.3, 0.4, 0.1, 0.1, 0.7, 10000, WordPairs::kNone}},
      {"ar", {true, true, 25, false, 20, 100000, 10, 0.2, 5, 0.34, 0.3, 0.07, 0.03, 0.81, 2300, WordPairs::kNone}},
      {"bn", {true, true, 20, false, 33, 100000, 10, 0.13, 5, 0.21, 0.45, 0.002, 0.001, 0.95, 2000, WordPairs::kNone}},
      {"ca", {true, true, 20, false, 15, 100000, 10, 0.2, 5, 0.4, 0.25, 0.25, 0.1, 0.8, 2500, WordPairs::kNone}},
      {"en", {true, true, 25, false, 20, 100000, 10, 0.106, 5, 0.19, 0.4, 0.3, 0.01, 0.8, 1500, WordPairs::kNone}},
      {"es", {true, true, 25, false, 16, 100000, 10, 0.14, 5, 0.25, 0.34, 0.4, 0.01, 0.8, 1300, WordPairs::kNone}},
      {"eu", {true, true, 28, false, 8, 100000, 10, 0.2, 5, 0.4, 0.31, 0.05, 0.1, 0.7, 3000, WordPairs::kNone}},
      {"fr", {true, true, 45, false, 13, 100000, 10, 0.14, 5, 0.13, 0.34, 0.27, 0.008, 0.8, 1770, WordPairs::kNone}},
      {"hi", {true, true, 25, false, 38, 100000, 10, 0.18, 5, 0.47, 0.45, 0.01, 0.005, 0.9, 1517, WordPairs::kNone}},
      {"id", {true, true, 30, false, 15, 100000, 10, 0.15, 5, 0.2, 0.34, 0.15, 0.01, 0.7, 5000, WordPairs::kNone}},
      {"pt", {true, true, 19, false, 19, 100000, 10, 0.25, 5, 0.98, 0.35, 0.2, 0.007, 0.6, 3038, WordPairs::kNone}},
      {"ur", {true, true, 20, false, 25, 100000, 10, 0.19, 7, 0.5, 0.25, 0.01, 0.025, 0.9, 1495, WordPairs::kNone}},
      {"vi", {true, true, 25, false, 30, 100000, 10, 0.15, 5, 0.2, 0.34, 0.08, 0.005, 0.9, 1600, WordPairs::kBlank}},
      {"zh", {false, false, 1000, true, 1, 1000000, 3, 0.2, 5, 0.96, 0.3, 0.1691, 0.001, 0.85, 2095, WordPairs::kJoined}},
  };
  return rows;
}
// clang-format on

}  // namespace

const OscarParameters* find_oscar_parameters(std::string_view language) {
  for (const OscarRow& row : oscar_rows())
    if (language == row.language) return &row.parameters;
  return nullptr;
}

std::vector<std::string> oscar_languages() {
  std::vector<std::string> languages;
  for (const OscarRow& row : oscar_rows())
    if (row.language != std::string_view("default")) languages.emplace_back(row.language);
  return languages;
}

}  // namespace espalier::curate
