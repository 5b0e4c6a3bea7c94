// The ranks wait for one another before anything that they do together. Exactly one verdict is given on how it ends, by
// who says it first (compareSet): so none continues while another leaves.
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "base/format.h"
#include "dist/rendezvous.h"
#include "launch/wait_report.h"

namespace espalier::dist {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kEnd = "assembly/end";
constexpr const char* kAllAreHere = "all are here";
constexpr const char* kAskedToStop = " was asked to stop";
constexpr size_t kMostNamed = 8;
constexpr auto kTimeOfTheFirst = std::chrono::seconds(10);  // to say that it has waited long enough

std::string key_of(int64_t rank) { return concat("assembly/rank ", rank); }

// The first word that anybody said.
std::string say_end(c10d::Store& store, const std::string& word) { return store.compareSet(kEnd, std::string(), word); }

std::string names_of(const std::vector<int64_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) text += concat(i == 0 ? "" : ", ", ranks[i]);
  return ranks.size() > kMostNamed ? concat(text, ", ... (", ranks.size(), " of them)") : text;
}

// The first rank checks who has arrived; the others look only for its verdict.
class Missing {
 public:
  explicit Missing(int64_t num_ranks) {
    for (int64_t rank = 0; rank < num_ranks; ++rank) ranks_.push_back(rank);
  }
  const std::vector<int64_t>& look(c10d::Store& store) {
    std::erase_if(ranks_, [&](int64_t rank) { return store.check({key_of(rank)}); });
    return ranks_;
  }

 private:
  std::vector<int64_t> ranks_;
};

}  // namespace

void assemble(c10d::Store& store, const Assembly& assembly) {
  const Clock::time_point deadline = Clock::now() + assembly.timeout;
  auto pause = std::chrono::milliseconds(5);
  launch::WaitReport report(assembly.timeout, std::chrono::seconds(5));
  Missing missing(assembly.num_ranks);
  store.set(key_of(assembly.rank), std::vector<uint8_t>{1});
  while (true) {
    std::string end = store.check({kEnd}) ? say_end(store, kAllAreHere) : "";
    if (end.empty() && assembly.rank == 0) {
      const std::vector<int64_t>& absent = missing.look(store);
      if (absent.empty()) end = say_end(store, kAllAreHere);
      if (!absent.empty() && Clock::now() >= deadline)
        end = say_end(store, concat(names_of(absent), " of ", assembly.num_ranks, " did not come within ",
                                    format_duration(std::chrono::duration<double>(assembly.timeout).count())));
      if (!absent.empty()) report.look(concat(names_of(absent), " of ", assembly.num_ranks));
    }
    // The first rank says so itself, unless it has ended.
    if (end.empty() && assembly.rank != 0 && Clock::now() >= deadline + kTimeOfTheFirst)
      end = say_end(store, concat("rank 0 of ", assembly.num_ranks, " did not say who has come within ",
                                  format_duration(std::chrono::duration<double>(assembly.timeout).count())));
    if (end.empty() && assembly.stopped && assembly.stopped())
      end = say_end(store, concat("rank ", assembly.rank, kAskedToStop));
    if (end == kAllAreHere) return;
    if (end.ends_with(kAskedToStop)) throw StoppedBeforeStart(end);
    if (!end.empty())
      throw UserError(concat(end,
                             ", so the run did not begin. All processes have to be started: as many as WORLD_SIZE "
                             "says, with the numbers from 0."),
                      ExitCode::kLostPeer);
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::milliseconds(200));
  }
}

}  // namespace espalier::dist
