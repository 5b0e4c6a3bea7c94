#include "ckpt/copy_choice.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace espalier::ckpt {

std::optional<CopyChoice> choose_copies(const std::vector<HeldCopy>& held, const std::vector<uint64_t>& wanted) {
  std::map<std::pair<int64_t, uint64_t>, std::vector<HeldCopy>> by_content;
  std::set<int64_t> steps;
  for (const HeldCopy& copy : held) by_content[{copy.step, copy.identity}].push_back(copy), steps.insert(copy.step);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    CopyChoice choice{.step = *step, .of_ranks = {}};
    for (int64_t rank = 0; rank < std::ssize(wanted); ++rank) {
      const auto found = by_content.find({*step, wanted[static_cast<size_t>(rank)]});
      if (found == by_content.end()) break;
      const auto order = [rank](const HeldCopy& copy) {
        return std::tuple(copy.holder != rank, copy.holder, copy.slots != launch::SlotsOf::kRank, copy.slot);
      };
      choice.of_ranks.push_back(*std::min_element(found->second.begin(), found->second.end(),
                                                  [&](const auto& a, const auto& b) { return order(a) < order(b); }));
    }
    if (choice.of_ranks.size() == wanted.size()) return choice;
  }
  return std::nullopt;
}

std::string to_text(const std::vector<HeldCopy>& copies) {
  std::string text;
  for (const HeldCopy& copy : copies)
    text += concat(copy.holder, " ", copy.slots == launch::SlotsOf::kRank ? 0 : 1, " ", copy.slot, " ", copy.step, " ",
                   copy.identity, "\n");
  return text;
}

std::vector<HeldCopy> copies_from_text(const std::string& text) {
  const std::vector<std::string> words = split_blanks(text);
  std::vector<HeldCopy> copies;
  for (size_t at = 0; at + 5 <= words.size(); at += 5)
    copies.push_back({.holder = std::stoll(words[at]),
                      .slots = words[at + 1] == "0" ? launch::SlotsOf::kRank : launch::SlotsOf::kPeer,
                      .slot = std::stoi(words[at + 2]),
                      .step = std::stoll(words[at + 3]),
                      .identity = std::stoull(words[at + 4])});
  return copies;
}

}  // namespace espalier::ckpt
