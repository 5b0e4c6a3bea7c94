// What launchers ask of the store through which they meet: RendezvousClient in a run, a simulated one in tests.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"

namespace espalier::launch {

// Keys that did not come in time.
class RendezvousTimeout : public UserError {
 public:
  using UserError::UserError;
};

// The server is gone, or cannot be reached any more.
class RendezvousLost : public UserError {
 public:
  explicit RendezvousLost(const std::string& message) : UserError(message, ExitCode::kLostPeer) {}
};

class RendezvousStore {
 public:
  using Milliseconds = std::chrono::milliseconds;

  virtual ~RendezvousStore() = default;
  // A UserError of any of these means that the server is gone.
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual void append(const std::string& key, const std::string& value) = 0;
  // Waits until all are there; RendezvousTimeout names what is not.
  virtual std::vector<std::string> multi_get(const std::vector<std::string>& keys, Milliseconds timeout) = 0;
  virtual void wait(const std::vector<std::string>& keys, Milliseconds timeout) = 0;
  virtual int64_t add(const std::string& key, int64_t amount) = 0;  // the sum; a key that does not exist counts as 0
  // Sets `desired` if the value is `expected` (empty: or there is none). The value afterwards; `expected` if there is
  // none.
  virtual std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) = 0;
  // The server sets these when this connection ends, however it ends: so that others notice. Replaces the former will.
  virtual void leave_will(const std::vector<std::string>& keys, const std::vector<std::string>& values) = 0;
  virtual bool check(const std::vector<std::string>& keys) = 0;  // do all exist?

  std::string get(const std::string& key, Milliseconds timeout) { return multi_get({key}, timeout).front(); }
};

}  // namespace espalier::launch
