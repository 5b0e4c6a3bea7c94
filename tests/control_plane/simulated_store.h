// The rendezvous store of a simulated cluster: what rendezvous_server.h promises, over a network that takes its time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "launch/rendezvous_store.h"
#include "tests/control_plane/fibers.h"
#include "tests/control_plane/random.h"

namespace espalier::control_plane {

struct Network {
  double shortest = 1e-4, longest = 1e-3;  // seconds, one way
  double late = 0, latest = 0;             // the share of messages that are late, and how late at most
};

class SimulatedStore {
 public:
  SimulatedStore(Fibers& fibers, Random& random, const Network& network)
      : fibers_(fibers), random_(random), network_(network) {}

  void open();   // empty
  void close();  // cuts off all clients
  bool is_open() const { return is_open_; }
  int64_t num_clients(int but_of_process) const;

  int connect(int process);
  // The server takes the connection for closed, and sets its last will.
  void disconnect(int connection);
  void cut_off(int process, double server_notices, double client_notices);  // seconds from now
  void disconnect_all_of(int process);

  bool has(const std::string& key) const { return data_.count(key) != 0; }
  std::string value(const std::string& key) const { return has(key) ? data_.at(key) : ""; }
  // When it was set first, of what is in the store.
  std::optional<Nanoseconds> time_of(const std::string& key) const;

  // What clients ask; on a fiber.
  void pass_network();
  void must_be_connected(int connection) const;
  void set(const std::string& key, const std::string& value);
  void append(const std::string& key, const std::string& value);
  bool wait(int connection, const std::vector<std::string>& keys, Nanoseconds until);
  int64_t add(const std::string& key, int64_t amount);
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired);
  void leave_will(int connection, const std::vector<std::string>& keys, const std::vector<std::string>& values);
  bool check(const std::vector<std::string>& keys) const;
  Fibers& fibers() { return fibers_; }

 private:
  struct Connection {
    int process = -1;
    bool server_has_it = true, client_has_it = true;
    std::vector<std::pair<std::string, std::string>> will;
    Fiber* waiting = nullptr;
  };
  void note(const std::string& key);
  void wake(Connection& connection);

  Fibers& fibers_;
  Random& random_;
  const Network& network_;
  bool is_open_ = false;
  std::unordered_map<std::string, std::string> data_;
  std::unordered_map<std::string, Nanoseconds> times_;
  std::unordered_map<std::string, std::vector<int>> waiters_;  // connections, by key
  std::map<int, Connection> connections_;
  int num_connections_ = 0;
};

// A connection.
class SimulatedClient : public launch::RendezvousStore {
 public:
  SimulatedClient(SimulatedStore& store, int process) : store_(store), id_(store.connect(process)) {}
  ~SimulatedClient() override { store_.disconnect(id_); }
  SimulatedClient(const SimulatedClient&) = delete;

  void set(const std::string& key, const std::string& value) override;
  void append(const std::string& key, const std::string& value) override;
  std::vector<std::string> multi_get(const std::vector<std::string>& keys, Milliseconds timeout) override;
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override;
  int64_t add(const std::string& key, int64_t amount) override;
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override;
  void leave_will(const std::vector<std::string>& keys, const std::vector<std::string>& values) override;
  bool check(const std::vector<std::string>& keys) override;

 private:
  template <class Serve>
  auto ask(const Serve& serve);

  SimulatedStore& store_;
  int id_;
};

}  // namespace espalier::control_plane
