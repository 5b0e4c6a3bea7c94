// A month of a run on a virtual clock, with all that a healthy one does, and what goes wrong in others: no false alarm,
// and one for each fault.
#include "watch/judge.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "base/error.h"
#include "watch/chain.h"

namespace espalier::watch {
namespace {

constexpr double kDay = 86400, kHour = 3600, kLook = 30;

// A run of 105-second steps under jobs of 20 hours, which saves every three hours and evaluates for 25 minutes once a
// day; the next job waits in the queue for up to 9 hours.
class VirtualRun {
 public:
  RunSight sight(double now) {
    live(now);
    RunSight sight;
    sight.folder = "/runs/a";
    sight.last_word = in_job_ ? LastWord::kStart : LastWord::kStopped;
    sight.detail = in_job_ ? "" : "SIGUSR1";
    sight.step = step_, sight.num_steps = 1'000'000, sight.step_seconds = kStep;
    sight.newest_checkpoint = saved_, sight.checkpoint_bytes = int64_t{2} << 40, sight.checkpoint_files = 500;
    sight.life = static_cast<uint64_t>(step_ * 7 + saved_ * 3 + num_jobs_);
    if (change) change(sight, now);
    return sight;
  }
  bool is_queued() const { return !in_job_; }
  std::function<void(RunSight&, double)> change;  // a fault

 private:
  static constexpr double kStep = 105, kJob = 20 * kHour;

  void live(double now) {
    for (; time_ < now; time_ += 1) {
      if (in_job_ && time_ >= job_end_) {
        in_job_ = false, saved_ = step_;
        job_begin_ = time_ + static_cast<double>(num_jobs_ * 7919 % 32400);  // the queue: up to nine hours
      }
      if (!in_job_ && time_ >= job_begin_) {
        in_job_ = true, ++num_jobs_;
        next_step_ = time_ + 1200 + kStep;  // loading takes twenty minutes
        job_end_ = time_ + kJob;
        step_ = saved_;
      }
      if (!in_job_ || time_ < next_step_) continue;
      ++step_;
      next_step_ += kStep;
      if (step_ % 100 == 0) saved_ = step_, next_step_ += 40;
      if (step_ % 800 == 0) next_step_ += 1500;     // an evaluation
      if (step_ % 3000 == 0 && step_ > crashed_) {  // a crash, once: a hundred steps again
        crashed_ = step_;
        step_ = saved_ = step_ - 100, next_step_ = time_ + 900 + kStep;
      }
    }
  }

  double time_ = 0, job_begin_ = 0, job_end_ = 0, next_step_ = 0;
  int64_t step_ = 0, saved_ = 0, num_jobs_ = 0, crashed_ = 0;
  bool in_job_ = false;
};

Room disk(double free_tib, double free_inodes = 5e6) {
  const double tib = 1024.0 * 1024 * 1024 * 1024;
  return {"/runs", 7, free_tib * tib, 400 * tib, free_inodes, 1e7};
}

using Faults = std::function<void(WatchSight&, double)>;

std::vector<Trouble> watch(double days, VirtualRun& run, const Faults& faults = {}) {
  Judge judge({});
  Incidents incidents;
  std::vector<Trouble> told;
  for (double now = 0; now < days * kDay; now += kLook) {
    WatchSight sight;
    sight.runs = {run.sight(now)};
    sight.is_queued = run.is_queued();
    sight.rooms = {disk(30)};
    sight.quotas = {{"bytes", 60, 100}};
    if (faults) faults(sight, now);
    for (const Trouble& trouble : incidents.update(judge.look(sight, now))) told.push_back(trouble);
  }
  return told;
}

std::string listed(const std::vector<Trouble>& told) {
  std::string text;
  for (const Trouble& trouble : told) text += trouble.incident + ": " + trouble.detail + "\n";
  return text;
}

TEST(Judge, ThirtyQuietDaysGiveNoAlarm) {
  VirtualRun run;
  EXPECT_EQ(listed(watch(30, run)), "");
  EXPECT_GT(run.sight(30 * kDay).step, 10'000);  // it did train
}

// Each is planted at the fifth day of ten and lasts, or heals by itself.
TEST(Judge, EachPlantedFaultGivesOneAlarm) {
  const double begin = 5 * kDay + 12 * kHour, heals = 6.5 * kDay;
  struct Planted {
    const char* incident;
    std::function<void(VirtualRun&)> in_run;
    Faults in_sight;
  };
  const auto freeze = [&](LastWord word, bool is_dead, bool lasts) {
    return [=](VirtualRun& run) {
      auto frozen = std::make_shared<std::optional<RunSight>>();
      run.change = [=](RunSight& sight, double now) {
        if (now < begin || (!lasts && now >= heals)) return;
        if (!*frozen) *frozen = sight;
        sight = **frozen;
        sight.last_word = word, sight.has_died = is_dead;
      };
    };
  };
  const auto unqueued_until = [&](double end) -> Faults {
    return [=](WatchSight& sight, double now) { sight.is_queued = sight.is_queued && (now < begin || now >= end); };
  };
  const Faults never_queued = unqueued_until(100 * kDay);
  const std::vector<Planted> all = {
      {"no progress", freeze(LastWord::kStart, false, true), never_queued},            // hangs, without a launcher
      {"no progress", freeze(LastWord::kStart, true, true), never_queued},             // the launcher was killed
      {"no progress", freeze(LastWord::kFailed, false, true), never_queued},           // ended by an error
      {"no progress", freeze(LastWord::kStopped, false, true), never_queued},          // stopped, and no job follows
      {"no progress", freeze(LastWord::kStart, false, false), unqueued_until(heals)},  // and goes on later
      {"no progress",                                                                  // starts again and again
       [&](VirtualRun& run) {
         auto first = std::make_shared<std::optional<int64_t>>();
         run.change = [=](RunSight& sight, double now) {
           if (now < begin) return;
           if (!*first) *first = sight.step;
           sight.last_word = LastWord::kStart;
           sight.step = **first - static_cast<int64_t>(now / 60) % 3;
           sight.life = static_cast<uint64_t>(now);
         };
       },
       never_queued},
      {"little room", {}, [&](WatchSight& sight, double now) { sight.rooms = {disk(now < begin ? 30 : 3)}; }},
      {"little room",  // to and fro about the bound, on the same disk under two names
       {},
       [&](WatchSight& sight, double now) {
         const double free = now < begin ? 30 : 4 + 0.5 * (static_cast<int64_t>(now / kLook) % 2 == 0 ? 1 : -1);
         sight.rooms = {disk(free), disk(free)};
       }},
      {"little room", {}, [&](WatchSight& sight, double now) { sight.rooms = {disk(30, now < begin ? 5e6 : 800)}; }},
      {"quota",
       {},
       [&](WatchSight& sight, double now) {
         sight.quotas = {{"inodes", now < begin ? 50.0 : 86.0, 100}};
       }},
  };
  for (size_t at = 0; at < all.size(); ++at) {
    VirtualRun run;
    if (all[at].in_run) all[at].in_run(run);
    const std::vector<Trouble> told = watch(10, run, all[at].in_sight);
    ASSERT_EQ(told.size(), 1u) << "fault " << at << "\n" << listed(told);
    EXPECT_EQ(told[0].incident, all[at].incident) << "fault " << at;
  }
}

// What it says is what happened: starts are counted, and a run that only records something has not started.
TEST(Judge, NamesWhyARunThatLivesGainsNothing) {
  const auto told = [](int64_t starts, bool is_paused) {
    Pulse pulse({});
    RunSight sight;
    sight.last_word = LastWord::kStart, sight.step = 5, sight.step_seconds = 1, sight.starts = 1;
    EXPECT_EQ(pulse.look(sight, 0, false), "");
    sight.starts += starts, sight.is_paused = is_paused;
    for (double now = 60; now < 1800; now += 60) {
      ++sight.life;
      EXPECT_EQ(pulse.look(sight, now, false), "");
    }
    ++sight.life;
    return pulse.look(sight, is_paused ? 1860 : 1800, false);  // the pause was seen after a minute
  };
  const std::string gained = "the run has gained no step beyond 5 for 30 min 00 s: ";
  EXPECT_EQ(told(3, false), gained + "it has started 3 times since");
  EXPECT_EQ(told(1, false), gained + "it has started once since");
  EXPECT_EQ(told(0, false),
            gained + "it has not started again since, but records events or writes files (events.jsonl)");
  EXPECT_EQ(told(0, true),
            "the run has been paused for 30 min 00 s, after step 5: espalier ctl RUN resume continues it");
}

// The launcher has told that the run has ended: the same is not told twice.
TEST(Judge, AnEndThatTheLauncherHasToldIsNoNews) {
  Pulse pulse({});
  RunSight sight;
  sight.last_word = LastWord::kFailed, sight.step = 5, sight.end_is_told = true;
  EXPECT_EQ(pulse.look(sight, 0, false), "");
  EXPECT_EQ(pulse.look(sight, 1e6, false), "");
  sight.end_is_told = false;
  EXPECT_NE(pulse.look(sight, 2e6, false).find("has failed after step 5"), std::string::npos);
}

// The launcher has told that a machine is left out, which is no end: if none follows, somebody has to hear of it.
TEST(Judge, ARunThatGoesOnWithoutAMachineHasNotEnded) {
  for (const std::string end : {"restart 1 of 3 follows", "the run goes on without that machine"}) {
    RunSight sight;
    const std::string failed = "rank 2 on beta failed (signal 9, SIGKILL) as often as is allowed; " + end;
    read_event({.time = 0, .event = "start", .detail = "", .step = 0}, sight);
    read_event({.time = 0, .event = "failure", .detail = failed, .step = -1}, sight);
    read_event({.time = 0, .event = "alerted", .detail = "failure: " + failed, .step = -1}, sight);
    EXPECT_EQ(sight.last_word, LastWord::kStart) << end;
    Pulse pulse({});
    EXPECT_EQ(pulse.look(sight, 0, false), "");
    EXPECT_NE(pulse.look(sight, 1800, false), "") << end;
  }
}

TEST(Judge, WhatIsOpenIsRemembered) {
  Incidents before, after;
  const std::vector<Trouble> all = {{"no progress", "/runs/a", "x"}, {"quota", "", "y"}};
  EXPECT_EQ(before.update(all).size(), 2u);
  after.read_json(before.to_json());
  EXPECT_EQ(listed(after.update(all)), "");
  EXPECT_TRUE(after.is_open("quota", ""));
  EXPECT_EQ(after.update({}).size(), 0u);
  EXPECT_EQ(after.update(all).size(), 2u);
  after.read_json("{");
  EXPECT_FALSE(after.is_open("quota", ""));
}

TEST(Chain, SubmitsTheNextJobOnceAndNeverBlindly) {
  RunSight run;
  run.last_word = LastWord::kStart, run.step = 100, run.num_steps = 1000, run.step_seconds = 100;
  const auto job = [](double left) { return QueuedJob{"12_3", true, false, left}; };
  Chain chain({.ahead_seconds = kHour, .may_submit = true});
  EXPECT_FALSE(chain.look(run, {job(2 * kHour)}).submits);  // time enough
  const ChainStep step = chain.look(run, {job(0.5 * kHour)});
  EXPECT_TRUE(step.submits);
  EXPECT_EQ(step.after, std::vector<std::string>{"12"});
  EXPECT_FALSE(chain.look(run, {job(0.5 * kHour), {"13", false, true, {}}}).submits);  // it waits already
  chain.note_submitted(run);
  EXPECT_NE(chain.look(run, {}).trouble.find("has gained no step"), std::string::npos);
  run.step = 101;
  EXPECT_TRUE(chain.look(run, {}).submits);
  run.last_word = LastWord::kFailed;
  EXPECT_FALSE(chain.look(run, {}).submits);
  run.last_word = LastWord::kStart, run.step = 990;  // done before the job ends
  EXPECT_FALSE(chain.look(run, {job(0.5 * kHour)}).submits);
  run.step = 500;
  EXPECT_NE(Chain({}).look(run, {job(60)}).trouble.find("no further job is queued"), std::string::npos);
}

TEST(Chain, ReadsWhatTheSchedulersPrint) {
  const auto jobs = parse_squeue("12_[3-10%1]|PENDING|20:00:00\n12_2|RUNNING|1-02:03:04\n7|RUNNING|UNLIMITED\n\n");
  ASSERT_EQ(jobs.size(), 3u);
  EXPECT_TRUE(jobs[0].waits && !jobs[0].runs && any_waits(jobs));
  EXPECT_EQ(jobs[1].seconds_left, 86400.0 + 2 * 3600 + 3 * 60 + 4);
  EXPECT_FALSE(jobs[2].seconds_left.has_value());
  const auto pbs = parse_qstat(
      R"({"Jobs": {"1.srv": {"Job_Name": "a", "job_state": "R", "Resource_List": {"walltime": "02:00:00"},
          "resources_used": {"walltime": "00:30:00"}}, "2.srv": {"Job_Name": "b", "job_state": "Q"}}})",
      "a");
  ASSERT_EQ(pbs.size(), 1u);
  EXPECT_EQ(pbs[0].seconds_left, 5400);
  EXPECT_THROW(parse_qstat("no json", "a"), UserError);
}

TEST(Room, QuotasOfACommandAreRead) {
  const auto quotas = parse_quotas("bytes 90 100\ninodes 5 0\n\nfiles 1 10\n");
  ASSERT_EQ(quotas.size(), 2u);  // one has no limit
  EXPECT_NE(lack_of_quota(quotas, 0.85, false).find("bytes: 90 B of 100 B (90.0 %)"), std::string::npos)
      << lack_of_quota(quotas, 0.85, false);
  EXPECT_THROW(parse_quotas("bytes 90\n"), UserError);
  EXPECT_THROW(parse_quotas("bytes 90 lots\n"), UserError);
}

}  // namespace
}  // namespace espalier::watch
