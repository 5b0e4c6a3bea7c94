// What a launcher is told that ends the run, and how it passes that on to its ranks: signals (`espalier ctl` sends them
// too), and the run's own rules, which the ranks follow themselves (the kill switch, its time).
//
// A signal that ends launchers (SIGTERM, SIGINT) also ends this one; a second makes it say how to insist, and one more
// within two seconds of that kills the ranks. SIGUSR1 lets training save and stop.
#pragma once

#include <optional>
#include <string>

#include "launch/launch_options.h"
#include "launch/launcher.h"
#include "launch/node_meeting.h"
#include "launch/ranks.h"
#include "launch/surroundings.h"

namespace espalier::launch {

class StopOrders {
 public:
  using Time = Surroundings::Time;

  StopOrders(const LaunchOptions& options, const RankProgram& program, Surroundings& surroundings, NodeMeeting& meeting,
             LaunchSite& site)
      : options_(options),
        program_(program),
        surroundings_(surroundings),
        meeting_(meeting),
        site_(site),
        start_(surroundings.now()) {}

  void begin_round(bool is_again);  // `is_again`: not the first of the run
  // While its ranks run. `deadline`: when they are to be killed; none: they have as long as it takes.
  void pass_on(int signal, Ranks& ranks, std::optional<Time>& deadline);
  void look_for_reason(const Ranks& ranks);
  void ask_again(Ranks& ranks);
  void say_who_is_awaited(const Ranks& ranks);

  void take_between_rounds(int signal);

  // To end in this round.
  bool is_told() const { return !by_.empty(); }
  const std::string& by() const { return by_; }  // "SIGUSR1", "the kill switch '...' exists"; empty: not told
  std::optional<ToldToEnd> told() const;
  // With copies of the ranks' state in memory the next start can save it and stop: after SIGUSR1, which it gets again,
  // and by the run's own rules, which it follows itself.
  bool may_end_later() const;
  bool is_for_good() const { return is_told() && !may_end_later(); }

  int ending_signal() const { return ending_signal_; }  // the launcher ends of it; 0: none has come
  bool asks_to_stop() const { return asks_to_stop_; }   // SIGUSR1, in whatever round

 private:
  std::optional<double> patience() const;
  void note(const std::string& by);

  const LaunchOptions& options_;
  const RankProgram& program_;
  Surroundings& surroundings_;
  NodeMeeting& meeting_;
  LaunchSite& site_;
  const Time start_;
  // Of this round.
  bool is_again_ = false, is_told_by_rule_ = false;
  bool has_asked_ = false;  // its ranks, by SIGUSR1
  std::string by_;
  Time told_at_, round_start_, last_question_, last_word_;
  // Of the run.
  bool asks_to_stop_ = false;
  int ending_signal_ = 0, num_endings_ = 0;
  Time last_ending_;
};

}  // namespace espalier::launch
