// Personal information as BigScience masked it: what is found, and the text without it.
//
// Upstream went through its kinds in the order of a Python set, so that texts in which matches overlap came out
// differently from run to run. Here all kinds are looked for in the untouched text, and replaced in the order EMAIL,
// IP_ADDRESS, KEY, USER: always one of upstream's results.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier::curate {

struct PiiMatch {
  std::string tag, text;
  bool operator==(const PiiMatch&) const = default;
};

// By tag, then in the order of the text. False where a search was given up.
bool find_pii(std::string_view text, std::vector<PiiMatch>& matches);

// Every occurrence of what was found becomes PI:TAG.
std::string redacted(std::string_view text, const std::vector<PiiMatch>& matches);

}  // namespace espalier::curate
