#include "launch/stacks.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/host_name.h"
#include "base/log.h"
#include "launch/internal/number.h"
#include "launch/internal/process_state.h"
#include "launch/internal/rank_list.h"
#include "launch/internal/report_file.h"
#include "launch/internal/symbols.h"

namespace espalier::launch {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostThreads = 256;  // of a rank
constexpr auto kAnswerPatience = std::chrono::seconds(1), kPatienceForOthers = std::chrono::seconds(5);
constexpr const char* kMainThread = "main thread";

struct Asked {
  size_t index;  // of the rank
  pid_t thread;
};

// Whether a thread would hear the signal: those that serve a rank's launcher let none in.
bool hears(pid_t pid, pid_t thread, int signal) {
  std::ifstream file(concat("/proc/", pid, "/task/", thread, "/status"));
  unsigned long long blocked = 0;
  for (std::string line; std::getline(file, line);)
    if (std::sscanf(line.c_str(), "SigBlk: %llx", &blocked) == 1) return (blocked >> (signal - 1) & 1) == 0;
  return false;
}

// The process's threads that can answer, the main one first.
std::vector<pid_t> threads_of(pid_t pid, Threads which, int signal) {
  std::vector<pid_t> threads = {pid};
  std::error_code error;
  if (which == Threads::kMain) return threads;
  for (fs::directory_iterator task(concat("/proc/", pid, "/task"), error), last;
       !error && task != last && threads.size() < kMostThreads; task.increment(error))
    if (const auto number = parse_whole(task->path().filename().string()); number && *number != pid)
      if (const auto thread = static_cast<pid_t>(*number); hears(pid, thread, signal)) threads.push_back(thread);
  return threads;
}

std::string name_of(pid_t pid, pid_t thread) {
  if (pid == thread) return kMainThread;
  std::ifstream file(concat("/proc/", pid, "/task/", thread, "/comm"));
  std::string name;
  std::getline(file, name);
  return concat("thread ", name);
}

std::string why_no_answer(pid_t pid, pid_t thread) {
  const bool is_main = pid == thread;  // any thread of the process that waits for a disk may then be the cause
  switch ((is_main ? internal::state_of(pid) : internal::state_of_thread(pid, thread)).state) {
    case 't':
    case 'T': return "is stopped (SIGSTOP, or a debugger) and cannot answer";
    case 'D': return "waits for a disk or a file system and cannot answer";
    case 'X':
    case 'Z': return "has ended";
    default: return "did not answer within a second";
  }
}

struct Group {
  std::vector<std::string> frames;
  std::string why_none;
  std::vector<int64_t> ranks;
  std::vector<std::string> names;
  int64_t num_threads = 0;
};

// Threads with the same functions, the largest group first; main threads or all the others.
std::vector<Group> groups_of(const std::vector<RankStacks>& ranks, bool of_main) {
  std::vector<Group> groups;
  for (const RankStacks& rank : ranks)
    for (const ThreadStack& thread : rank.threads) {
      if ((thread.thread == kMainThread) != of_main) continue;
      auto found = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
        return group.frames == thread.frames && group.why_none == thread.why_none;
      });
      if (found == groups.end())
        found = groups.insert(
            groups.end(),
            Group{.frames = thread.frames, .why_none = thread.why_none, .ranks = {}, .names = {}, .num_threads = 0});
      ++found->num_threads;
      if (found->ranks.empty() || found->ranks.back() != rank.rank) found->ranks.push_back(rank.rank);
      if (std::find(found->names.begin(), found->names.end(), thread.thread) == found->names.end())
        found->names.push_back(thread.thread);
    }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Group& left, const Group& right) { return left.ranks.size() > right.ranks.size(); });
  return groups;
}

// The innermost function, and the innermost of ours around it.
std::string place_of(const std::vector<std::string>& frames) {
  if (frames.empty()) return "an empty stack";
  const auto ours = std::find_if(frames.begin(), frames.end(),
                                 [](const std::string& frame) { return frame.starts_with("espalier::"); });
  const auto function = [](const std::string& frame) { return frame.substr(0, frame.rfind(" (")); };
  if (ours == frames.end() || ours == frames.begin()) return function(frames.front());
  return concat(function(*ours), " (in ", function(frames.front()), ")");
}

class Collector {
 public:
  Collector(const WhereaboutsBoard& board, const std::vector<pid_t>& pids, std::vector<RankStacks>& ranks)
      : board_(board), ranks_(ranks), mappings_(pids.size()) {
    for (size_t at = 0; at < pids.size(); ++at)
      if (pids[at] >= 0) mappings_[at] = internal::read_mappings(pids[at]);
  }

  // One thread of each rank at the same time. Only addresses: reading the names may take longer than any wait.
  void ask(const std::vector<Asked>& threads) {
    std::vector<Asked> awaited;
    for (const Asked& asked : threads)
      if (request_stack(record(asked), ranks_[asked.index].pid, asked.thread)) awaited.push_back(asked);
    const auto end = std::chrono::steady_clock::now() + kAnswerPatience;
    while (!awaited.empty() && std::chrono::steady_clock::now() < end) {
      std::erase_if(awaited, [&](const Asked& asked) { return take(asked); });
      if (!awaited.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (const Asked& asked : awaited) {
      RankStacks& rank = ranks_[asked.index];
      std::string why = why_no_answer(rank.pid, asked.thread);
      if (asked.thread == rank.pid)
        rank.why_none = std::move(why);
      else
        add_without(asked, std::move(why));
    }
  }

  void leave_out(const std::vector<Asked>& threads) {
    for (const Asked& asked : threads) add_without(asked, "was not asked: those before it took too long");
  }

  void name_functions() {
    for (const Answer& answer : answers_) {
      ThreadStack stack{.thread = answer.name, .frames = {}, .why_none = answer.why_none};
      // A return address is that of the next instruction, which may be the next function's.
      for (size_t at = 0; at < answer.addresses.size(); ++at)
        stack.frames.push_back(symbols_.name(mappings_[answer.index], answer.addresses[at] - (at == 0 ? 0 : 1)));
      ranks_[answer.index].threads.push_back(std::move(stack));
    }
  }

 private:
  struct Answer {
    size_t index;  // of the rank
    std::string name;
    std::vector<uint64_t> addresses;
    std::string why_none = {};
  };

  StackRecord& record(const Asked& asked) const { return board_.stack_record(static_cast<int64_t>(asked.index)); }

  bool take(const Asked& asked) {
    auto addresses = answered_stack(record(asked), asked.thread);
    if (!addresses) return false;
    answers_.push_back({asked.index, name_of(ranks_[asked.index].pid, asked.thread), std::move(*addresses)});
    return true;
  }

  void add_without(const Asked& asked, std::string why_none) {
    answers_.push_back({asked.index, name_of(ranks_[asked.index].pid, asked.thread), {}, std::move(why_none)});
  }

  const WhereaboutsBoard& board_;
  std::vector<RankStacks>& ranks_;
  std::vector<std::vector<internal::Mapping>> mappings_;
  std::vector<Answer> answers_;
  internal::Symbols symbols_;
};

}  // namespace

std::vector<RankStacks> collect_stacks(const WhereaboutsBoard& board, int64_t first_rank,
                                       const std::vector<pid_t>& pids, Threads which) {
  std::vector<RankStacks> ranks(pids.size());
  std::vector<std::vector<pid_t>> threads(pids.size());
  size_t most = 0;
  for (size_t at = 0; at < pids.size(); ++at) {
    ranks[at].rank = first_rank + static_cast<int64_t>(at);
    ranks[at].pid = pids[at];
    if (pids[at] < 0) continue;
    const int signal = board.stack_record(static_cast<int64_t>(at)).signal;
    if (signal == 0)
      ranks[at].why_none = "has not begun: it has no stack yet";
    else
      threads[at] = threads_of(pids[at], which, signal);
    most = std::max(most, threads[at].size());
  }
  Collector collector(board, pids, ranks);
  const auto start = std::chrono::steady_clock::now();
  for (size_t number = 0; number < most; ++number) {
    std::vector<Asked> asked;
    for (size_t at = 0; at < pids.size(); ++at)
      if (number < threads[at].size() && ranks[at].why_none.empty()) asked.push_back({at, threads[at][number]});
    if (std::chrono::steady_clock::now() - start < kPatienceForOthers)
      collector.ask(asked);
    else
      collector.leave_out(asked);
  }
  collector.name_functions();
  std::erase_if(ranks, [](const RankStacks& rank) { return rank.pid < 0; });
  return ranks;
}

std::string stacks_text(const std::vector<RankStacks>& ranks) {
  std::string text;
  for (const RankStacks& rank : ranks)
    if (!rank.why_none.empty()) text += concat("rank ", rank.rank, " (process ", rank.pid, ") ", rank.why_none, "\n\n");
  for (const bool of_main : {true, false})
    for (const Group& group : groups_of(ranks, of_main)) {
      text += concat(internal::ranks_in_words(group.ranks), ", ", join(group.names, ", "));
      if (group.num_threads > static_cast<int64_t>(group.ranks.size()))
        text += concat(" (", group.num_threads, " threads)");
      text += "\n";
      for (const std::string& frame : group.frames) text += "    " + frame + "\n";
      if (!group.why_none.empty()) text += "    (" + group.why_none + ")\n";
      text += "\n";
    }
  return text;
}

std::string stacks_summary(const std::vector<RankStacks>& ranks) {
  std::vector<std::string> parts;
  for (const Group& group : groups_of(ranks, /*of_main=*/true))
    parts.push_back(concat(internal::ranks_in_words(group.ranks), " in ", place_of(group.frames)));
  for (const RankStacks& rank : ranks)
    if (!rank.why_none.empty()) parts.push_back(concat("rank ", rank.rank, " ", rank.why_none));
  return join(parts, "; ");
}

std::string write_stacks(const std::string& folder, const std::string& reason, const std::vector<RankStacks>& ranks) {
  return internal::write_report(
      folder, "stacks",
      concat("stacks of the ranks on ", host_name(), ", ", internal::utc_now("%Y-%m-%d %H:%M:%S UTC"), ": ", reason,
             "\n\n", stacks_text(ranks)));
}

}  // namespace espalier::launch
