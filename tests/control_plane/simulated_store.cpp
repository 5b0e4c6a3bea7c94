#include "tests/control_plane/simulated_store.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"

namespace espalier::control_plane {

void SimulatedStore::open() {
  data_.clear();
  times_.clear();
  is_open_ = true;
}

void SimulatedStore::close() {
  is_open_ = false;
  for (auto& [id, connection] : connections_) {
    connection.server_has_it = connection.client_has_it = false;
    connection.will.clear();
    wake(connection);
  }
}

int64_t SimulatedStore::num_clients(int but_of_process) const {
  return std::count_if(connections_.begin(), connections_.end(), [&](const auto& entry) {
    return entry.second.server_has_it && entry.second.process != but_of_process;
  });
}

int SimulatedStore::connect(int process) {
  connections_[num_connections_].process = process;
  return num_connections_++;
}

void SimulatedStore::disconnect(int id) {
  Connection& connection = connections_.at(id);
  if (connection.server_has_it && is_open_)
    for (const auto& [key, value] : connection.will) set(key, value);
  connection.will.clear();
  connection.server_has_it = connection.client_has_it = false;
  connection.waiting = nullptr;
}

void SimulatedStore::disconnect_all_of(int process) {
  for (auto& [id, connection] : connections_)
    if (connection.process == process) disconnect(id);
}

void SimulatedStore::cut_off(int process, double server_notices, double client_notices) {
  for (auto& [id, connection] : connections_) {
    if (connection.process != process) continue;
    fibers_.at(fibers_.now() + nanoseconds(server_notices), [this, id = id] {
      Connection& cut = connections_.at(id);
      Fiber* waiting = cut.waiting;
      const bool client_has_it = cut.client_has_it;
      disconnect(id);
      cut.waiting = waiting, cut.client_has_it = client_has_it;
    });
    fibers_.at(fibers_.now() + nanoseconds(client_notices), [this, id = id] {
      connections_.at(id).client_has_it = false;
      wake(connections_.at(id));
    });
  }
}

std::optional<Nanoseconds> SimulatedStore::time_of(const std::string& key) const {
  const auto found = times_.find(key);
  return found == times_.end() ? std::nullopt : std::optional<Nanoseconds>(found->second);
}

void SimulatedStore::pass_network() {
  const bool is_late = network_.late > 0 && random_.chance(network_.late);
  fibers_.sleep(nanoseconds(is_late ? random_.between(network_.longest, network_.latest)
                                    : random_.between(network_.shortest, network_.longest)));
}

void SimulatedStore::must_be_connected(int id) const {
  const Connection& connection = connections_.at(id);
  if (!connection.client_has_it || !connection.server_has_it)
    throw launch::RendezvousLost("lost the simulated rendezvous store");
}

void SimulatedStore::wake(Connection& connection) {
  if (connection.waiting != nullptr) fibers_.wake(std::exchange(connection.waiting, nullptr));
}

void SimulatedStore::note(const std::string& key) {
  times_.try_emplace(key, fibers_.now());
  const auto found = waiters_.find(key);
  if (found == waiters_.end()) return;
  const std::vector<int> waiting = std::move(found->second);
  waiters_.erase(found);
  for (const int id : waiting) wake(connections_.at(id));
}

void SimulatedStore::set(const std::string& key, const std::string& value) {
  data_[key] = value;
  note(key);
}

void SimulatedStore::append(const std::string& key, const std::string& value) {
  data_[key] += value;
  note(key);
}

// Until all are there: true. Looks at the first that is not, and when it comes at the next.
bool SimulatedStore::wait(int id, const std::vector<std::string>& keys, Nanoseconds until) {
  size_t at = 0;
  while (true) {
    while (at < keys.size() && has(keys[at])) ++at;
    if (at == keys.size()) return true;
    if (fibers_.now() >= until) return false;
    Connection& connection = connections_.at(id);
    if (!connection.client_has_it) return false;
    waiters_[keys[at]].push_back(id);
    connection.waiting = fibers_.current();
    fibers_.wait(until);
    connection.waiting = nullptr;
    if (const auto found = waiters_.find(keys[at]); found != waiters_.end()) std::erase(found->second, id);
  }
}

int64_t SimulatedStore::add(const std::string& key, int64_t amount) {
  const int64_t sum = (has(key) ? std::stoll(data_.at(key)) : 0) + amount;
  set(key, std::to_string(sum));
  return sum;
}

std::string SimulatedStore::compare_set(const std::string& key, const std::string& expected,
                                        const std::string& desired) {
  const auto found = data_.find(key);
  if (found == data_.end() && !expected.empty()) return expected;
  if (found != data_.end() && found->second != expected) return found->second;
  set(key, desired);
  return desired;
}

void SimulatedStore::leave_will(int id, const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  Connection& connection = connections_.at(id);
  connection.will.clear();
  for (size_t at = 0; at < keys.size(); ++at) connection.will.emplace_back(keys[at], values[at]);
}

bool SimulatedStore::check(const std::vector<std::string>& keys) const {
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) { return has(key); });
}

// There and back; a request that the connection loses on the way may have been served all the same. A process that is
// killed meanwhile may ask in a destructor, which catches this error only.
template <class Serve>
auto SimulatedClient::ask(const Serve& serve) {
  if (store_.fibers().is_killed()) throw UserError("the process is killed");
  try {
    store_.must_be_connected(id_);
    store_.pass_network();
    store_.must_be_connected(id_);
    const auto answer = serve();
    store_.pass_network();
    store_.must_be_connected(id_);
    return answer;
  } catch (const Killed&) {
    throw UserError("the process is killed");
  }
}

void SimulatedClient::set(const std::string& key, const std::string& value) {
  ask([&] { return store_.set(key, value), 0; });
}

void SimulatedClient::append(const std::string& key, const std::string& value) {
  ask([&] { return store_.append(key, value), 0; });
}

std::vector<std::string> SimulatedClient::multi_get(const std::vector<std::string>& keys, Milliseconds timeout) {
  return ask([&] {
    if (!store_.wait(id_, keys, store_.fibers().now() + std::chrono::nanoseconds(timeout).count())) {
      store_.must_be_connected(id_);
      throw launch::RendezvousTimeout("nobody has set " + join(keys, ", "));
    }
    std::vector<std::string> values;
    for (const std::string& key : keys) values.push_back(store_.value(key));
    return values;
  });
}

void SimulatedClient::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  ask([&] {
    if (!store_.wait(id_, keys, store_.fibers().now() + std::chrono::nanoseconds(timeout).count())) {
      store_.must_be_connected(id_);
      throw launch::RendezvousTimeout("not all of the keys are there");
    }
    return 0;
  });
}

int64_t SimulatedClient::add(const std::string& key, int64_t amount) {
  return ask([&] { return store_.add(key, amount); });
}

std::string SimulatedClient::compare_set(const std::string& key, const std::string& expected,
                                         const std::string& desired) {
  return ask([&] { return store_.compare_set(key, expected, desired); });
}

void SimulatedClient::leave_will(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  ask([&] { return store_.leave_will(id_, keys, values), 0; });
}

bool SimulatedClient::check(const std::vector<std::string>& keys) {
  return ask([&] { return store_.check(keys); });
}

}  // namespace espalier::control_plane
