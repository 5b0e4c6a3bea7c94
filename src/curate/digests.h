// What documents leave for a pass that will have to decide about them: the digest of each, apart by the parts in which
// the pass takes them in.
//
// A digest takes its bytes and, where numbers follow closely, two more: of what is short there are many.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::curate {

// Parts by the first bits of a hash: what is equal is in one part.
inline constexpr int64_t kHashParts = 16;
inline size_t hash_part(uint64_t hash) { return static_cast<size_t>(hash >> 60); }

class Digests {
 public:
  explicit Digests(size_t num_parts = 0) : parts_(num_parts) {}

  // In the order of the numbers. A document may leave nothing in a part, or several digests.
  void add(size_t part, int64_t number, std::string_view digest);
  // What later documents left.
  void append(const Digests& later);

  size_t num_parts() const { return parts_.size(); }
  std::string_view bytes(size_t part) const { return parts_[part].bytes; }
  // Calls take(number, digest) for each that is in the bytes of a part, in order.
  template <class Take>
  static void for_each(std::string_view bytes, Take take) {
    for (uint64_t number = 0; !bytes.empty();) {
      number += read_number(bytes);
      const uint64_t size = read_number(bytes);
      take(static_cast<int64_t>(number), bytes.substr(0, size));
      bytes.remove_prefix(size);
    }
  }

 private:
  // Each digest follows the distance of its number from the one before (of the first: from 0) and its size, as numbers
  // of 7 bits a byte.
  struct Part {
    std::string bytes;
    int64_t first = 0, last = 0;  // numbers
  };
  static void append_number(uint64_t number, std::string& bytes);
  static uint64_t read_number(std::string_view& bytes);

  std::vector<Part> parts_;
};

}  // namespace espalier::curate
