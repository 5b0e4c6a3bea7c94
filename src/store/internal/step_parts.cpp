#include "store/internal/step_parts.h"

#include <algorithm>
#include <optional>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"

namespace espalier::store {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kAbortName = "abort";
constexpr const char* kWrittenName = "written";
constexpr const char* kRankZeroGaveUp = "rank 0 gave up the save; its own log says why";
constexpr auto kAbortGrace = std::chrono::milliseconds(10'000);
// Seeing the other ranks through is worth this much to a process that is about to end.
constexpr auto kLeavingGrace = std::chrono::milliseconds(1'000);
constexpr auto kLeavingPatience = std::chrono::milliseconds(2'000);
// File systems of several machines show a new folder late.
constexpr auto kFolderPatience = std::chrono::milliseconds(60'000);

fs::path file_of(const fs::path& partial, int64_t rank, const char* ending) {
  return partial / concat("rank-", rank, ending);
}

// Whole or absent; it need not be durable.
void put_file(const fs::path& path, const Writers& writers, const std::string& content) {
  const fs::path temporary = concat(path.string(), ".of-rank-", writers.rank);
  OutputFile file(temporary);
  file.write(content.data(), content.size());
  file.close();
  fs::rename(temporary, path);
}

// An empty file. When even that fails, the folder is gone, and with it the need.
void put_name(const fs::path& path) {
  try {
    OutputFile(path).close();
  } catch (const UserError&) {
  }
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Why the save was stopped, if it was.
std::optional<std::string> abort_reason(const fs::path& partial) {
  if (!is_there(partial / kAbortName)) return std::nullopt;
  try {
    const std::string reason = read_file(partial / kAbortName);
    if (!reason.empty()) return reason;
  } catch (const UserError&) {  // removed since
  }
  return "another rank could not write its part; its own log says why";
}

// Asks again and again, at least five times a second, until `ready` or there is a reason to stop.
template <class Ready, class Describe>
void wait_until(const Writers& writers, const Ready& ready, const Describe& what_for) {
  const Clock::time_point start = Clock::now();
  for (auto pause = std::chrono::microseconds(500); !ready();
       pause = std::min<std::chrono::microseconds>(pause * 3 / 2, std::chrono::milliseconds(200))) {
    const auto waited = Clock::now() - start;
    if (writers.leaving != nullptr && *writers.leaving && waited > kLeavingPatience)
      throw UserError(concat("the run ended while this process waited for ", what_for()), ExitCode::kInputOutput);
    if (waited > writers.patience)
      throw UserError(
          concat("nothing heard for ", format_duration(std::chrono::duration<double>(writers.patience).count()), " of ",
                 what_for(), ". Has that process ended?"),
          ExitCode::kInputOutput);
    std::this_thread::sleep_for(pause);
  }
}

// The first line guards the edges: a network file system may show a file before all of its content.
void read_part(const fs::path& partial, int64_t rank, WrittenPart& part) {
  const fs::path path = file_of(partial, rank, ".done");
  std::istringstream lines(read_file(path));
  size_t edge_bytes = 0;
  uint64_t edge_checksum = 0;
  ESPALIER_CHECK(lines >> edge_bytes >> edge_checksum, path.string());
  WrittenBlock next;
  while (lines >> next.tensor >> next.block.offset >> next.block.bytes >> next.block.checksum)
    part.blocks.push_back(next);
  ESPALIER_CHECK(lines.eof(), path.string(), " after ", part.blocks.size(), " blocks");
  if (edge_bytes == 0) return;
  const std::string edges = read_file(file_of(partial, rank, ".edges"));
  if (edges.size() != edge_bytes || hash64(edges) != edge_checksum)
    throw UserError(
        concat("'", file_of(partial, rank, ".edges").string(), "': expected ", edge_bytes, " bytes with checksum ",
               hex64(edge_checksum), ", found ", edges.size(), " with ", hex64(hash64(edges))),
        ExitCode::kInputOutput);
  for (FileEdges& one : decode_edges(edges, rank)) part.edges.push_back(std::move(one));
}

// Rank 0: waits until every other rank has left its file with this ending.
void await_all(const fs::path& partial, const Writers& writers, const char* ending, const char* what_it_does) {
  for (int64_t rank = 1; rank < writers.count; ++rank)
    wait_until(
        writers,
        [&] {
          check_not_aborted(partial);
          return is_there(file_of(partial, rank, ending));
        },
        [&] { return concat("rank ", rank, ", which ", what_it_does, " a part of the checkpoint"); });
  check_not_aborted(partial);
}

void remove_all_of(const fs::path& partial, const Writers& writers, const char* ending) {
  for (int64_t rank = 1; rank < writers.count; ++rank) fs::remove(file_of(partial, rank, ending));
}

}  // namespace

void await_begin(const fs::path& partial, const Writers& writers) {
  const Clock::time_point end = Clock::now() + std::min(kFolderPatience, writers.patience);
  for (; !is_there(partial); std::this_thread::sleep_for(std::chrono::milliseconds(5)))
    if (Clock::now() > end)
      throw UserError(concat("'", partial.string(), "', which rank 0 has created, cannot be seen by rank ",
                             writers.rank, ". Do all machines share the folder of --save?"),
                      ExitCode::kInputOutput);
}

void check_not_aborted(const fs::path& partial) {
  if (const auto reason = abort_reason(partial)) throw UserError(*reason, ExitCode::kInputOutput);
}

void leave_part(const fs::path& partial, const Writers& writers, const WrittenPart& part) {
  const std::string edges = encode(part.edges);
  if (!edges.empty()) put_file(file_of(partial, writers.rank, ".edges"), writers, edges);
  std::ostringstream lines;
  lines << edges.size() << ' ' << hash64(edges) << '\n';
  for (const WrittenBlock& written : part.blocks)
    lines << written.tensor << ' ' << written.block.offset << ' ' << written.block.bytes << ' '
          << written.block.checksum << '\n';
  put_file(file_of(partial, writers.rank, ".done"), writers, lines.str());
}

void collect_parts(const fs::path& partial, const Writers& writers, WrittenPart& part) {
  await_all(partial, writers, ".done", "writes");
  for (int64_t rank = 1; rank < writers.count; ++rank) read_part(partial, rank, part);
  remove_all_of(partial, writers, ".done");
  remove_all_of(partial, writers, ".edges");
}

void say_written(const fs::path& partial, const Writers& writers) {
  if (writers.count > 1) put_file(partial / kWrittenName, writers, "");
}

void await_written(const fs::path& partial, const Writers& writers) {
  wait_until(
      writers,
      [&] {
        if (is_there(partial / kWrittenName)) return true;
        check_not_aborted(partial);
        if (!is_there(partial)) throw UserError(kRankZeroGaveUp, ExitCode::kInputOutput);
        return false;
      },
      [] { return "rank 0, which collects the parts of the checkpoint"; });
}

void leave_read(const fs::path& partial, const Writers& writers) {
  put_file(file_of(partial, writers.rank, ".read"), writers, "");
}

void collect_reads(const fs::path& partial, const Writers& writers) {
  await_all(partial, writers, ".read", "reads back");
  remove_all_of(partial, writers, ".read");
  if (writers.count > 1) fs::remove(partial / kWrittenName);
}

void await_commit(const fs::path& partial, const fs::path& target, const Writers& writers) {
  wait_until(
      writers,
      [&] {
        if (is_there(target)) return true;
        check_not_aborted(partial);
        // Renamed between the two looks?
        if (!is_there(partial) && !is_there(target)) throw UserError(kRankZeroGaveUp, ExitCode::kInputOutput);
        return false;
      },
      [] { return "rank 0, which completes the checkpoint"; });
}

std::string abort_step(const fs::path& partial, const Writers& writers, const std::string& error) {
  std::error_code ignored;  // the reason that counts is `error`
  if (writers.count == 1) {
    fs::remove_all(partial, ignored);
    return error;
  }
  if (writers.rank != 0 && !is_there(partial)) return kRankZeroGaveUp;
  const std::optional<std::string> earlier = abort_reason(partial);
  const std::string reason = earlier.value_or(concat("rank ", writers.rank, ": ", error));
  try {
    if (!earlier) put_file(partial / kAbortName, writers, reason);
  } catch (const std::exception&) {
    put_name(partial / kAbortName);  // a full disk takes a name where it has no room for a text
  }
  put_name(file_of(partial, writers.rank, ".aborted"));
  if (writers.rank != 0) return reason;
  const auto all_know = [&] {
    for (int64_t rank = 1; rank < writers.count; ++rank)
      if (!is_there(file_of(partial, rank, ".aborted"))) return false;
    return true;
  };
  // A rank that leaves in the middle of a save does so because another is gone, which will never know.
  const bool leaving = writers.leaving != nullptr && *writers.leaving;
  const Clock::time_point end = Clock::now() + std::min(leaving ? kLeavingGrace : kAbortGrace, writers.patience);
  while (!all_know() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  fs::remove_all(partial, ignored);
  return reason;
}

}  // namespace espalier::store
