// Stretches of text that occurred before, by suffix arrays over shards of bounded size.
//
// A byte is repeated if it is in a window of `window` bytes, within one text, that occurs at an earlier place: in a
// text before, or further to the left. All occurrences but the first are found. The bytes of all texts are stored one
// after another in a file, separated by 0xFF (which valid UTF-8 does not have), in shards that overlap by a window less
// a byte. Each shard is sorted together with each one before it by libdivsufsort; suffixes with equal windows are then
// neighbours. As any two places are in one of these pairs, the result does not depend on the size of the shards.
//
// Memory: 11 bytes for each byte of a shard. Cost: O(n log n) where all fits in one pair; O(n^2 / shard) beyond it, so
// give it as much memory as there is. Lee et al., Deduplicating training data makes language models better, ACL 2022.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "curate/dedup/record_sorter.h"
#include "curate/dedup/sorted_records.h"

namespace espalier::curate {

struct ByteRange {
  uint64_t node;  // where it begins
  uint64_t end;
};

class Repeats {
 public:
  Repeats(const std::filesystem::path& folder, int64_t window, int64_t memory_bytes);

  // Where the text begins among all.
  uint64_t add(std::string_view text);
  // Leaves the ranges in the folder.
  void finish();

  int64_t num_bytes() const { return num_bytes_; }
  int64_t num_repeated() const { return num_repeated_; }
  int64_t num_shards() const { return num_shards_; }

 private:
  void flush();
  void mark(int64_t earlier, int64_t shard, std::vector<bool>& marked) const;
  void write_ranges(int64_t shard, const std::vector<bool>& marked);
  void write_last();
  std::string read(int64_t shard) const;

  std::filesystem::path folder_;
  int64_t window_, shard_bytes_, num_bytes_ = 0, num_repeated_ = 0, num_shards_ = 0;
  std::optional<OutputFile> output_;
  std::string pending_;
  std::optional<InputFile> input_;
  std::optional<RecordWriter<ByteRange>> writer_;
  std::optional<ByteRange> last_;
};

// What Repeats left in a folder. Any thread.
class RepeatedRanges {
 public:
  RepeatedRanges() = default;
  explicit RepeatedRanges(const std::filesystem::path& folder);

  // The repeated bytes of a text that begins there, from its begin on, apart and in order.
  std::vector<ByteRange> of(uint64_t begin, uint64_t size) const;

 private:
  SortedRecords<ByteRange> ranges_;
};

// The text without the ranges, which shrink to whole characters. Valid UTF-8.
std::string without_ranges(std::string_view text, const std::vector<ByteRange>& ranges);

}  // namespace espalier::curate
