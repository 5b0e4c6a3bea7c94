// What a stage left on disk: its documents in shards, each of which exists whole or not at all.
//
//   WORK/stage-0/00000017.documents.zst   a document a line: its number, a blank, JSON
//                         .digests.zst    for the pass that comes after the stage
//                         .fates.zst      a line for each document that went: {"n":NUMBER,"s":STEP,"r":REASON,...}
//                         .json           counts, and that the shard is complete
//                         .lock           held by the process that makes it
//
// The shards of stage 0 are cut after a number of bytes of input, so they are the same each time; shard N of the next
// stage holds what is left of shard N. Any number of processes, on machines that share the folder, make what is not
// complete: each shard is one process's, and another's once that has ended without completing it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "curate/file_lock.h"
#include "curate/stage.h"

namespace espalier::curate {

// What is known of a complete shard.
struct ShardSummary {
  int64_t next_number = 0;  // after its last record
  std::string input_hash;   // in the first stage: of the bytes that it was made of
  InputTally input;
  std::vector<StepTally> tallies;
};

// The documents of a complete shard, one at a time: their lines are in memory, but not all of them parsed,
// since a short document takes many times the bytes of its line.
class ShardDocuments {
 public:
  explicit ShardDocuments(const std::filesystem::path& path);
  bool next(Document& document);  // false after the last

 private:
  std::string path_, lines_;
  size_t at_ = 0;
};

class ShardStore {
 public:
  // `num_parts`: of the pass that the stage ends with, if there is one.
  ShardStore(std::filesystem::path folder, size_t num_steps, int64_t num_parts = 0);

  bool is_complete(int64_t shard) const;
  int64_t num_incomplete(int64_t num_shards) const;
  // For as long as the lock lives, the shard is this process's to make. Nothing where it is complete, or another's.
  std::optional<FileLock> claim(int64_t shard) const;
  ShardSummary summary(int64_t shard) const;  // of a complete one, as are the next
  ShardDocuments documents(int64_t shard) const;
  // Calls add(number, digest) for each digest of that part, in order. Any thread.
  void feed(int64_t shard, int64_t part, PassPart& into) const;
  std::string read_fates(int64_t shard) const;  // the lines

  // Blocks of a shard that was claimed, in order, and then the shard.
  void add(BlockResult&& block);
  void finish_shard(int64_t shard, const std::string& input_hash = "");
  bool has_pending() const { return has_pending_; }

 private:
  std::filesystem::path path_of(int64_t shard, const char* kind) const;

  std::filesystem::path folder_;
  size_t num_steps_;
  bool has_pending_ = false;
  ShardSummary pending_;
  std::string documents_, fates_;
  Digests digests_;
};

// A line of a fates file, with its end.
std::string to_line(const FateRecord& fate);

}  // namespace espalier::curate
