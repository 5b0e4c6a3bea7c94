// How several processes end one save together: all of it becomes a checkpoint, or nothing.
//
// They speak through files in step_N.partial/: the folder is what they share in any case, a thread can look into it
// without disturbing an exchange of tensors, and what a killed process has left unsaid is plainly missing.
//   rank-3.edges    the ends of its ranges that are not whole pages, which rank 0 writes (page_edges.h)
//   rank-3.done     the rest of what rank 3 has to write is on the disk; the checksums of its blocks
//   written         rank 0 has written the pages that nobody has whole: everything is on the disk
//   rank-3.read     rank 3 has read back what it wrote, and found it right
//   abort           some rank failed: which and why; all stop
//   rank-3.aborted  rank 3 has read that
// Rank 0 waits for all of them, then writes the manifest and renames the folder, which is what the others wait for.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "store/internal/page_edges.h"
#include "store/step_writer.h"

namespace espalier::store {

struct WrittenBlock {
  size_t tensor = 0;  // number in the list of tensors
  Block block;
};

// Returns when rank 0's partial folder can be seen here; throws when that takes too long.
void await_begin(const std::filesystem::path& partial, const Writers& writers);

// Throws the reason (UserError) when a rank has called abort_step.
void check_not_aborted(const std::filesystem::path& partial);

// What a rank has written, and what it leaves to rank 0 to write.
struct WrittenPart {
  std::vector<WrittenBlock> blocks;
  std::vector<FileEdges> edges;
};

// "What I had to write is on the disk."
void leave_part(const std::filesystem::path& partial, const Writers& writers, const WrittenPart& part);

// For rank 0: waits for the parts of all other ranks and adds them to `part`; removes their files. Throws when a rank
// has failed or says nothing for too long.
void collect_parts(const std::filesystem::path& partial, const Writers& writers, WrittenPart& part);

// Rank 0: "all of it is on the disk"; the others wait for that before they read.
void say_written(const std::filesystem::path& partial, const Writers& writers);
void await_written(const std::filesystem::path& partial, const Writers& writers);

// "What I wrote reads back right"; rank 0 waits for all of them.
void leave_read(const std::filesystem::path& partial, const Writers& writers);
void collect_reads(const std::filesystem::path& partial, const Writers& writers);

// For the others: returns when `target` exists.
void await_commit(const std::filesystem::path& partial, const std::filesystem::path& target, const Writers& writers);

// Stops all ranks because of `error` of this one (which may be that another has stopped). Returns why nothing was
// saved, with the rank. Rank 0 removes the folder as soon as all have read it, or after some seconds.
std::string abort_step(const std::filesystem::path& partial, const Writers& writers, const std::string& error);

}  // namespace espalier::store
