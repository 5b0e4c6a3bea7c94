// Where each rank of a run is, for the launcher that watches them: a page of shared memory with a slot for each rank.
//
// A rank writes into its slot as it goes; nothing of it waits, and without a launcher nothing happens:
//   open_whereabouts();                             // first thing in the program
//   set_phase(RunPhase::kTrain, step);
//   note_progress(micro_batch);                     // whenever something was done
//   const WaitsFor waits(Waiting::kPeers, "all-reduce", group);   // while it lives
// Only the thread that opened the slot writes; these calls from others do nothing.
//
// The launcher makes the page, hands it to its ranks (an inherited descriptor, named in their environment) and reads:
//   WhereaboutsBoard board(num_ranks);
//   variables[kWhereaboutsVariable] = board.variable(local_rank);
//   const Sight sight = board.sight(local_rank);
// and may ask for something that the run does between two steps: Wishes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/stack_record.h"

namespace espalier {

enum class RunPhase : int32_t { kStart, kLoad, kTrain, kEvaluate, kSave, kExit };
inline constexpr int kNumRunPhases = 6;
std::string to_string(RunPhase phase);  // "start", "load", "train", "evaluate", "save", "exit"

enum class Waiting : int32_t {
  kNothing,  // the rank works itself
  kPeers,    // other ranks have to arrive
  kOthers,   // something outside the run: a child, a person
  kFiles,    // a thread of the rank itself, which reads or writes them
};
inline constexpr int kNumWaitings = 4;

inline constexpr const char* kWhereaboutsVariable = "ESPALIER_WHEREABOUTS";

void open_whereabouts();
bool whereabouts_are_open();
// `step`: the one that is under way; 0 before the first.
void set_phase(RunPhase phase, int64_t step);
// UserError (kLostPeer) after lose_peers(true).
void note_progress(int64_t micro_batch = -1);
// Of any thread: another rank has ended. A rank that computes for long meets no exchange that would tell it so.
void lose_peers(bool lost);
// Where the run keeps its records, so that the launcher can add to them.
void note_run_folder(const std::string& folder);

// What somebody asks of the run while it is running. The first rank's are those that count; it informs the others.
struct Wishes {
  uint32_t num_saves = 0;  // that were asked for so far
  bool pause = false;
  std::optional<LogLevel> log_level;
};
Wishes wishes();  // of this rank

// How long this rank has waited for its peers so far.
double seconds_waited_for_peers();

class WaitsFor {
 public:
  // `operation` outlives this object.
  WaitsFor(Waiting what, const char* operation, const std::string& whom);
  ~WaitsFor();
  WaitsFor(const WaitsFor&) = delete;
  WaitsFor& operator=(const WaitsFor&) = delete;

 private:
  bool counts_;
};

// What a launcher sees of a rank.
struct Sight {
  bool is_open = false;  // the rank has opened its slot
  RunPhase phase = RunPhase::kStart;
  int64_t step = 0, micro_batch = -1;
  Waiting waiting = Waiting::kNothing;
  std::string waits_for;     // "all-reduce of data"
  uint64_t progress = 0;     // counts what it has done
  double seconds_since = 0;  // the last of that
  std::string folder;
  // Of the stretches between two signs of progress in this phase so far, in this kind of waiting: how many, their 99th
  // percentile (rounded up to a power of two of microseconds), and the longest.
  int64_t num_stretches = 0;
  double percentile_99 = 0, longest = 0;  // seconds
};

class WhereaboutsBoard {
 public:
  // That of a rank without a launcher, which is watched from its own process: with its slot opened by this thread.
  // Stays until the process ends.
  static const WhereaboutsBoard& of_this_process();

  explicit WhereaboutsBoard(int64_t num_ranks);  // UserError if there is no memory for it
  ~WhereaboutsBoard();
  WhereaboutsBoard(const WhereaboutsBoard&) = delete;
  WhereaboutsBoard& operator=(const WhereaboutsBoard&) = delete;

  std::string variable(int64_t local_rank) const;
  Sight sight(int64_t local_rank) const;
  StackRecord& stack_record(int64_t local_rank) const;
  // For another process: the one that wrote there has ended.
  void clear(int64_t local_rank) const;

  void ask_for_save(int64_t local_rank) const;
  void ask_for_pause(int64_t local_rank, bool pause) const;
  void ask_for_log_level(int64_t local_rank, LogLevel level) const;
  Wishes wishes(int64_t local_rank) const;
  void forget_wishes(int64_t local_rank) const;

 private:
  void* slot_of(int64_t local_rank) const;
  int descriptor_ = -1;
  int64_t num_ranks_ = 0;
  void* memory_ = nullptr;
};

}  // namespace espalier
