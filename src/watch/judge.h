// What is wrong with the runs that are watched, from what a look finds, and which of it is news.
//
// Pure but for what it remembers: looks and a clock come from outside, so that a month passes in a second in a test.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "watch/pulse.h"
#include "watch/room.h"
#include "watch/sight.h"

namespace espalier::watch {

struct WatchRules {
  Patience patience;
  double least_free_bytes = 0;  // 0: twice the newest checkpoint, a GiB at least
  double most_quota_share = 0.85;
};

struct WatchSight {
  std::vector<RunSight> runs;  // the same runs at every look
  std::vector<Room> rooms;
  std::vector<Quota> quotas;
  bool is_queued = false;
};

struct Trouble {
  std::string incident;  // "no progress", "little room", "quota", "backup failed", ...
  std::string run;       // its folder; empty: of no single run
  std::string detail;
};

// The incidents that are open: each is told once, until it is over.
class Incidents {
 public:
  // Of one look: everything that is wrong now. Returns what is news, in order.
  std::vector<Trouble> update(const std::vector<Trouble>& all);
  bool is_open(const std::string& incident, const std::string& run) const;

  // For whoever watches after this process.
  std::string to_json() const;
  void read_json(const std::string& text);  // of anything else: nothing is open

 private:
  std::map<std::pair<std::string, std::string>, std::string> open_;  // (incident, run): detail
};

class Judge {
 public:
  explicit Judge(WatchRules rules) : rules_(rules) {}
  // `now`: seconds of a clock that never jumps.
  std::vector<Trouble> look(const WatchSight& sight, double now);

 private:
  Need need_of(const std::vector<RunSight>& runs) const;

  WatchRules rules_;
  std::map<std::string, Pulse> pulses_;  // by folder
  std::map<uint64_t, bool> is_low_;      // by file system
  bool quota_is_low_ = false;
};

}  // namespace espalier::watch
