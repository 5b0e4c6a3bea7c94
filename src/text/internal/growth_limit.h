// How long a text may become by the rules of a tokenizer's file, which may double it again and again.
//
//   const GrowthLimit limit(where, text.size());
//   ... limit.check(longer.size());
//
// 64 times its length and 1 MiB, at most 1 GiB (or 4 times its length). Of the rules that are in use NFKC makes most of
// a text: eleven times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace espalier::text::internal {

class GrowthLimit {
 public:
  // `where` (the file and the place in it) must outlive the limit.
  GrowthLimit(std::string_view where, size_t num_bytes)
      : where_(where),
        num_bytes_(num_bytes),
        limit_(std::min(64 * num_bytes + kAlways, std::max(kMost, 4 * num_bytes))) {}

  // Throws a UserError that says so if a text of `num_bytes` is too long.
  void check(size_t num_bytes) const {
    if (num_bytes > limit_) refuse();
  }

 private:
  static constexpr size_t kAlways = size_t{1} << 20, kMost = size_t{1} << 30;
  [[noreturn]] void refuse() const;

  std::string_view where_;
  size_t num_bytes_, limit_;
};

}  // namespace espalier::text::internal
