// The rows of all shards of an index, numbered one after another.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "retrieval/index_folder.h"

namespace espalier::retrieval::internal {

class ShardRows {
 public:
  explicit ShardRows(const IndexFacts& index) : dimension_(index.dimension) {
    for (const Shard& shard : index.shards) {
      files_.emplace_back(shard, index.dimension);
      // Rows are read here and there, so that nobody computes their checksum; a shard of another index is told anyway.
      if (const std::string stored = files_.back().stored_checksum(); stored != hex64(shard.checksum))
        throw UserError(concat("'", shard.path.string(), "' says that its checksum is ", stored, ", index.json says ",
                               hex64(shard.checksum), ": the shard belongs to another index"),
                        ExitCode::kBadData);
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + shard.rows);
    }
  }

  // Row `number`, and as many after it as its shard still has.
  const float* row(int64_t number) const {
    const Place place = place_of(number);
    return files_[place.shard].rows() + place.row * dimension_;
  }
  int64_t id(int64_t number) const {
    const Place place = place_of(number);
    return files_[place.shard].ids()[place.row];
  }
  // Copies `count` rows from `first` on.
  void read(int64_t first, int64_t count, float* rows) const {
    while (count > 0) {
      const int64_t here = std::min(count, ends_[place_of(first).shard] - first);
      std::copy_n(row(first), here * dimension_, rows);
      first += here, count -= here, rows += here * dimension_;
    }
  }

 private:
  struct Place {
    size_t shard;
    int64_t row;
  };
  Place place_of(int64_t number) const {
    const auto shard = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), number) - ends_.begin());
    return {shard, number - (shard == 0 ? 0 : ends_[shard - 1])};
  }

  int64_t dimension_;
  std::vector<ShardFile> files_;
  std::vector<int64_t> ends_;
};

}  // namespace espalier::retrieval::internal
