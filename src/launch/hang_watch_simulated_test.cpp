// The watch for hangs over a million simulated steps of a healthy run, on a virtual clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/stretches.h"
#include "launch/hang_watch.h"

namespace espalier::launch {
namespace hang_watch_simulated_test {

constexpr int64_t kRanks = 4, kStepsOfAStart = 50'000;
constexpr double kLook = 0.25;

// What a rank does until its next sign of progress. Idle: without processor time.
struct Piece {
  double end = 0;
  RunPhase phase = RunPhase::kStart;
  Waiting waiting = Waiting::kNothing;
  char state = 'R';
  bool is_idle = false;
};

// A run whose ranks work, read, write, wait for one another and are held up, for times with heavy tails:
//   busy: log-normal, and one in 2,000 after Pareto's law with exponent 1.1, cut off at 55 s; first steps of up to
//     10 minutes; evaluations and saves are longer than steps, and become longer as the run goes on
//   asleep without processor time: after Pareto's law, cut off at 4.5 s while training and 14 s elsewhere
//   waiting for a disk: the same with and without processor time, the latter cut off at 55 s
//   all wait for the network, together: cut off at 28 s
//   the machine stands still with all that is on it, its launcher too, for up to an hour
// The cuts are what the rules promise to bear. Statistics are those of base/stretches.h, by phase and kind of waiting.
class HealthyRun {
 public:
  explicit HealthyRun(unsigned seed) : random_(seed) {}

  // The first false report within so many steps; "": none.
  std::string find_false_report(const HangRules& rules, int64_t num_steps) {
    HangWatch watch({.now = [this] { return now_; },
                     .sight = [this](int64_t rank) { return sight(static_cast<size_t>(rank)); },
                     .state = [this](pid_t pid) { return state(static_cast<size_t>(pid - 100)); }},
                    0, rules);
    const std::vector<pid_t> pids = {100, 101, 102, 103};
    for (int64_t step = 0; step < num_steps; ++step) {
      step_ = step % kStepsOfAStart + 1;
      if (step_ == 1) begin_again();
      plan_step();
      for (; next_look_ < ranks_[0].pieces.back().end; next_look_ += kLook) {
        now_ = next_look_;
        for (Rank& rank : ranks_) follow(rank);
        ++num_looks_;
        const auto hang = watch.look(pids);
        if (hang) return "step " + std::to_string(step) + ": " + hang->text;
        longest_seen_ = std::max(longest_seen_, now_ - ranks_[0].since);
        if (draw() < 1e-5) pause_machine();
      }
      now_ = ranks_[0].pieces.back().end;
      for (Rank& rank : ranks_) follow(rank);
    }
    return "";
  }
  int64_t num_looks() const { return num_looks_; }
  double longest_seen() const { return longest_seen_; }
  double days() const { return now_ / 86400; }

 private:
  struct Rank {
    std::vector<Piece> pieces;
    size_t at = 0;
    double since = 0;
    uint64_t progress = 1;
    double busy_until = 0, ticks = 0;
    std::array<std::array<std::unique_ptr<Stretches>, 3>, kNumRunPhases> known;
  };

  double draw() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  double log_normal(double median, double sigma) {
    return std::lognormal_distribution<double>(std::log(median), sigma)(random_);
  }
  double pareto(double least, double exponent, double most) {
    return std::min(most, least * std::pow(1 - draw(), -1 / exponent));
  }

  void begin_again() {
    for (Rank& rank : ranks_)
      for (auto& of_phase : rank.known)
        for (auto& stretches : of_phase) stretches = std::make_unique<Stretches>();
  }

  void add(Rank& rank, double seconds, RunPhase phase, char state, bool is_idle) {
    const double begin = rank.pieces.empty() ? plan_begin_ : rank.pieces.back().end;
    rank.pieces.push_back({begin + seconds, phase, Waiting::kNothing, state, is_idle});
  }

  // All wait until the last has come, and `more`.
  void meet(RunPhase phase, double more) {
    double last = 0;
    for (const Rank& rank : ranks_) last = std::max(last, rank.pieces.back().end);
    for (Rank& rank : ranks_) rank.pieces.push_back({last + more, phase, Waiting::kPeers, 'S', true});
  }

  void hold_up(Rank& rank, RunPhase phase) {
    const double which = draw();
    const bool trains = phase == RunPhase::kTrain || phase == RunPhase::kEvaluate;
    if (which < 0.25)
      add(rank, pareto(1, 1.1, 55), phase, 'R', false);
    else if (which < 0.5)
      add(rank, pareto(0.5, 1.1, trains ? 4.5 : 14), phase, 'S', true);
    else if (which < 0.75)
      add(rank, pareto(1, 1.1, 55), phase, 'D', true);
    else
      add(rank, pareto(1, 1.1, 55), phase, 'D', false);
  }

  void plan_step() {
    plan_begin_ = now_;
    for (Rank& rank : ranks_) rank.pieces.clear(), rank.at = 0;
    const double growth = 1 + static_cast<double>(step_) / 20'000;  // files grow, file systems fill
    if (step_ == 1) {
      for (Rank& rank : ranks_) add(rank, pareto(1, 1.1, 14), RunPhase::kStart, 'S', true);
      for (Rank& rank : ranks_)
        for (int block = 0; block < 20; ++block) add(rank, pareto(1, 1.1, 55), RunPhase::kLoad, 'D', block % 2 == 0);
      meet(RunPhase::kLoad, pareto(4, 1.1, 28));
      for (Rank& rank : ranks_) add(rank, pareto(30, 0.8, 600), RunPhase::kTrain, 'R', false);  // compiles, allocates
    }
    for (Rank& rank : ranks_)
      for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
        add(rank, std::min(55.0, log_normal(0.05, 0.7)), RunPhase::kTrain, 'R', false);
        if (draw() < 1.0 / 2000) hold_up(rank, RunPhase::kTrain);
      }
    meet(RunPhase::kTrain, draw() < 1e-3 ? pareto(0.5, 1.1, 28) : 0.01);
    if (step_ % 100 == 0) {
      for (Rank& rank : ranks_)
        for (int micro_batch = 0; micro_batch < 5; ++micro_batch) {
          add(rank, std::min(55.0, log_normal(0.4 * growth, 0.7)), RunPhase::kEvaluate, 'R', false);
          if (draw() < 1.0 / 200) hold_up(rank, RunPhase::kEvaluate);
        }
      meet(RunPhase::kEvaluate, 0.01);
    }
    if (step_ % 250 == 0) {
      for (Rank& rank : ranks_) {
        add(rank, std::min(55.0, log_normal(2 * growth, 0.8)), RunPhase::kSave, 'D', false);
        if (draw() < 0.05) hold_up(rank, RunPhase::kSave);
      }
      meet(RunPhase::kSave, 0.05);
    }
    if (step_ == kStepsOfAStart) {
      for (Rank& rank : ranks_) add(rank, pareto(0.1, 1.1, 14), RunPhase::kExit, 'S', true);
      meet(RunPhase::kExit, 0.01);
    }
  }

  // A machine that is suspended, or a virtual one that is moved: nobody looks, and nothing is done.
  void pause_machine() {
    const double seconds = pareto(3, 0.5, 3600);
    for (Rank& rank : ranks_)
      for (size_t at = rank.at; at < rank.pieces.size(); ++at) rank.pieces[at].end += seconds;
    next_look_ += seconds;
  }

  void follow(Rank& rank) {
    while (rank.at < rank.pieces.size() && rank.pieces[rank.at].end <= now_) {
      const Piece& piece = rank.pieces[rank.at++];
      rank.known[static_cast<size_t>(piece.phase)][static_cast<size_t>(piece.waiting)]->add(
          static_cast<int64_t>((piece.end - rank.since) * 1e9));
      if (!piece.is_idle) rank.ticks += 100 * (piece.end - rank.since);
      rank.since = piece.end;
      ++rank.progress;
    }
  }
  const Piece& piece_of(const Rank& rank) const { return rank.pieces[std::min(rank.at, rank.pieces.size() - 1)]; }

  Sight sight(size_t number) const {
    const Rank& rank = ranks_[number];
    const Piece& piece = piece_of(rank);
    Sight sight;
    sight.is_open = true;
    sight.phase = piece.phase, sight.waiting = piece.waiting;
    sight.step = step_;
    sight.progress = rank.progress;
    sight.seconds_since = now_ - rank.since;
    const StretchSummary known =
        rank.known[static_cast<size_t>(piece.phase)][static_cast<size_t>(piece.waiting)]->summary();
    sight.num_stretches = known.num, sight.percentile_99 = known.percentile_99, sight.longest = known.longest;
    return sight;
  }
  internal::ProcessState state(size_t number) const {
    const Rank& rank = ranks_[number];
    const Piece& piece = piece_of(rank);
    const double ticks = rank.ticks + (piece.is_idle ? 0 : 100 * (now_ - rank.since));
    return {.state = piece.state, .cpu_ticks = static_cast<uint64_t>(ticks)};
  }

  std::mt19937_64 random_;
  std::array<Rank, kRanks> ranks_;
  int64_t step_ = 0, num_looks_ = 0;
  double now_ = 0, next_look_ = 0, plan_begin_ = 0, longest_seen_ = 0;
};

TEST(HangWatch, AMillionHealthyStepsAreNoHang) {
  HealthyRun run(3);
  EXPECT_EQ(run.find_false_report({}, 1'000'000), "");
  std::printf("1,000,000 steps, %.1f days, looked at %lld times, up to %.0f s without progress\n", run.days(),
              static_cast<long long>(run.num_looks()), run.longest_seen());
  EXPECT_GT(run.longest_seen(), 60) << "no stretch was long enough to try the rules";
}

// What the run above does comes close to every limit: with any of them too small, it would have been reported.
TEST(HangWatch, ALimitThatIsTooSmallIsFoundByHealthySteps) {
  const std::vector<std::pair<const char*, HangRules>> too_small = {
      {"shortest", {.shortest = 3}},  {"asleep elsewhere", {.asleep_elsewhere = 8}},
      {"disk", {.disk = 30}},         {"busy", {.busy = 30}},
      {"all wait", {.all_wait = 15}}, {"stretches to know", {.stretches_to_know = 0}},
  };
  for (const auto& [name, rules] : too_small) {
    const std::string report = HealthyRun(3).find_false_report(rules, 1'000'000);
    std::printf("%s: %s\n", name, report.c_str());
    EXPECT_NE(report, "") << name;
  }
}

}  // namespace hang_watch_simulated_test
}  // namespace espalier::launch
