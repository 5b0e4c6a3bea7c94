// What a stage left on disk: its documents in shards, each of which is there whole or not at all.
//
//   WORK/stage-0/00000017.documents.zst   a document a line: its number, a blank, JSON
//                         .digests.zst    for the pass that comes after the stage
//                         .fates.zst      a line for each document that went: {"n":NUMBER,"s":STEP,"r":REASON,...}
//                         .json           counts, and that the shard is complete
//
// A run that was killed goes on behind the last complete shard. The shards of stage 0 are cut after a number of
// bytes of input, so they are the same each time; shard N of the next stage holds what is left of shard N.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "curate/stage.h"

namespace espalier::curate {

// What is known of a complete shard.
struct ShardSummary {
  int64_t next_number = 0;  // behind its last record
  InputTally input;
  std::vector<StepTally> tallies;
};

class ShardStore {
 public:
  // Finds the complete shards that are there: the longest row from 0 on.
  ShardStore(std::filesystem::path folder, size_t num_steps);

  int64_t num_shards() const { return static_cast<int64_t>(summaries_.size()); }
  const ShardSummary& summary(int64_t shard) const { return summaries_.at(static_cast<size_t>(shard)); }
  std::vector<Document> read_documents(int64_t shard) const;
  // Calls add(number, digest) for each document, in order.
  void feed(int64_t shard, Pass& pass) const;
  std::string read_fates(int64_t shard) const;  // the lines

  // Blocks in order; those that end a shard are followed by finish_shard().
  void add(BlockResult&& block);
  void finish_shard();
  int64_t pending_bytes() const { return pending_input_bytes_; }
  bool has_pending() const { return has_pending_; }

 private:
  std::filesystem::path path_of(int64_t shard, const char* kind) const;

  std::filesystem::path folder_;
  size_t num_steps_;
  std::vector<ShardSummary> summaries_;
  bool has_pending_ = false;
  ShardSummary pending_;
  int64_t pending_input_bytes_ = 0;
  std::string documents_, digests_, fates_;
};

// A line of a fates file, with its end.
std::string to_line(const FateRecord& fate);

}  // namespace espalier::curate
