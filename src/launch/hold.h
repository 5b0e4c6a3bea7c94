// How ranks outlive the end of another: they leave what they do with it, and wait with their state in the launcher's
// memory (launch/snapshot_memory.h) for the next start, in which only the rank that has ended is a new process.
//
// The launcher has a line to each of its ranks (an inherited descriptor, named in their environment):
//   HoldLine line;
//   variables[kHoldVariable] = line.variable();   // line.rank_end() stays open in the process that becomes the rank
//   ... another rank is killed, and all ranks are told so (launch/peer_watch.h) ...
//   line.is_held()                                // it has left everything, and waits
//   line.start(variables);                        // of the next start
// A rank says that it can be held once its state is kept there, and that it is held when nothing of the run is left in
// its process:
//   open_hold();                                  // first thing in the program
//   offer_to_be_held();
//   ... what it does throws ExitCode::kLostPeer, up to where it began ...
//   if (may_be_held() && wait_for_next_start()) ...   // its environment is that of the next start
// Where its launcher does not want that, or has ended, the line is closed.
#pragma once

#include <map>
#include <string>

#include "launch/internal/socket.h"

namespace espalier::launch {

inline constexpr const char* kHoldVariable = "ESPALIER_HOLD";
// For a rank to leave what it does, once another has ended.
inline constexpr double kSecondsToLeave = 5;

class HoldLine {
 public:
  HoldLine();  // UserError where the system refuses it
  std::string variable() const;
  int rank_end() const { return rank_.get(); }
  void close_rank_end() { rank_.reset(); }

  // By what the rank has said until now.
  bool is_offered();
  bool is_held();
  bool start(const std::map<std::string, std::string>& variables);  // false: the rank is gone
  void close() { own_.reset(); }

 private:
  void hear();

  internal::Descriptor own_, rank_;
  bool is_offered_ = false, is_held_ = false;
};

void open_hold();
void offer_to_be_held();
bool may_be_held();
// That its launcher has closed the line.
bool is_given_up();
// Whether there is one for this process: then the variables of its environment are those of it.
bool wait_for_next_start();

}  // namespace espalier::launch
