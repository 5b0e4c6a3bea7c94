// Sends copies of a rank's state to a rank of another machine, over a connection of its own and from threads of its
// own: what the ranks exchange otherwise does not wait for it.
//
//   CopyLink link({secret, name, master_address});
//   link.end()                              // for the ranks that it is to talk to
//   link.receive_into(slots, end_of_the_one_before);   // before that rank sends any
//   link.send_to(end_of_the_next);
//   link.send(head, data, kept_step);       // returns at once; nothing of it changes while the state is kUnderWay
//   ... link.state()
//
// A copy has arrived when the receiver has it whole and with the right checksum; only then does it count there. Of the
// two slots there it takes the one that does not hold `kept_step`. The two sides prove to each other that they hold the
// job's secret and are the ends that are meant: an address may be another's by the time somebody calls there. What
// follows travels in the clear, as all that ranks exchange.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "launch/snapshot_memory.h"

namespace espalier::launch {

class CopyLink {
 public:
  struct Options {
    std::string secret;
    std::string name;                 // of this rank in this start of the run, in a few words
    std::string master_address = {};  // reached from the network that the ranks use
    double patience_seconds = 60;     // without a byte, until the link counts as broken
  };
  explicit CopyLink(const Options& options);  // UserError if it cannot listen
  ~CopyLink();                                // ends what is under way
  CopyLink(const CopyLink&) = delete;
  CopyLink& operator=(const CopyLink&) = delete;

  struct End {
    std::string address;  // "10.0.0.7:41234"
    std::string name;     // no other link has it
  };
  End end() const;
  void receive_into(SnapshotSlots& slots, const End& from);
  void send_to(const End& to);
  void send(const SnapshotHead& head, const uint8_t* data, int64_t kept_step);

  enum class State {
    kIdle,  // nothing was sent yet
    kUnderWay,
    kArrived,  // the last copy
    kDamaged,  // it arrived with another checksum, and does not count
    kBroken,   // nothing is sent any more
  };
  State state() const;
  State wait(double seconds) const;  // until the copy is under way no more, at most that long
  double seconds() const;            // that the last copy took until it had arrived
  std::string trouble() const;       // why it is broken

 private:
  class Sender;
  class Receiver;
  std::unique_ptr<Receiver> receiver_;
  std::unique_ptr<Sender> sender_;
  Options options_;
  std::string name_;
};

}  // namespace espalier::launch
