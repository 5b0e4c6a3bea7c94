#include "launch/rendezvous_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/sha256.h"
#include "launch/internal/protocol.h"
#include "launch/internal/socket.h"
#include "launch/internal/table.h"

namespace espalier::launch {

using namespace internal;

namespace {

constexpr auto kTimeForProof = std::chrono::seconds(10);
constexpr size_t kMaxUnproven = 1024;
constexpr int64_t kRefusalsShown = 10;

struct Wait {
  Operation operation = Operation::kWait;
  std::vector<std::string> keys;
};

struct Connection {
  Descriptor socket;
  std::string peer, in, out;
  Nonces nonces;
  Seal sealer, opener;
  bool proven = false;
  bool wants_output = false;  // epoll tells when it can be written to
  std::optional<Wait> wait;
  std::map<std::string, std::string> last_will;
  std::optional<Clock::time_point> deadline;  // of the proof, or of the wait
};

}  // namespace

// Connections are known by number: a descriptor may be used again while an event of its former owner is still queued.
class RendezvousServer::Loop {
 public:
  explicit Loop(const Options& options)
      : secret_(options.secret),
        listener_(listen_on(options.address, options.port, "host the ranks' rendezvous store")) {
    ESPALIER_CHECK(!secret_.empty(), "a rendezvous store without a secret");
    port_ = port_of(listener_);
    epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
    stop_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    spare_ = Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!epoll_.valid() || !stop_.valid())
      throw UserError(concat("cannot host a rendezvous store: ", std::strerror(errno)));
    watch(EPOLL_CTL_ADD, listener_.get(), kListener, EPOLLIN);
    watch(EPOLL_CTL_ADD, stop_.get(), kStop, EPOLLIN);
    sigset_t all, before;  // the program's own threads handle signals
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Loop() {
    const uint64_t one = 1;
    const ssize_t written = write(stop_.get(), &one, sizeof one);
    static_cast<void>(written);  // an eventfd takes its first 8 bytes
    thread_.join();
  }

  int port() const { return port_; }
  int64_t num_clients() const { return num_clients_; }
  int64_t num_refused() const { return num_refused_; }

 private:
  static constexpr uint64_t kListener = 0, kStop = 1, kFirstClient = 2;

  void watch(int what, int descriptor, uint64_t id, uint32_t events) {
    epoll_event event = {};
    event.events = events;
    event.data.u64 = id;
    ESPALIER_CHECK(epoll_ctl(epoll_.get(), what, descriptor, &event) == 0, std::strerror(errno));
  }

  void run() {
    epoll_event events[64];
    while (true) {
      const int count = epoll_wait(epoll_.get(), events, std::size(events), milliseconds_to_next_deadline());
      for (int at = 0; at < count; ++at) {
        const uint64_t id = events[at].data.u64;
        if (id == kStop) return;
        if (id == kListener)
          accept_all();
        else
          serve(id, events[at].events);
      }
      pass_deadlines();
    }
  }

  int milliseconds_to_next_deadline() const {
    if (deadlines_.empty()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadlines_.begin()->first - Clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
  }

  void set_deadline(uint64_t id, Connection& connection, std::optional<Clock::time_point> deadline) {
    if (connection.deadline) deadlines_.erase({*connection.deadline, id});
    connection.deadline = deadline;
    if (deadline) deadlines_.insert({*deadline, id});
  }

  void pass_deadlines() {
    while (!deadlines_.empty() && deadlines_.begin()->first <= Clock::now()) {
      const uint64_t id = deadlines_.begin()->second;
      Connection& connection = connections_.at(id);
      if (!connection.proven)
        refuse(id, "it sent no proof that it belongs to the job");
      else if (end_wait(id, connection, Status::kTimedOut))
        handle_messages(id, connection);
    }
  }

  void accept_all() {
    while (true) {
      Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket.valid() && (errno == EMFILE || errno == ENFILE)) {
        // No descriptors left: take and drop the connection, or epoll would report it for ever.
        warn_once("rendezvous store: too many open files; connections are dropped (see `ulimit -n`)");
        spare_.reset();
        Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)).reset();
        spare_ = Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
        return;
      }
      if (!socket.valid()) return;
      if (num_unproven_ >= kMaxUnproven) continue;
      greet(std::move(socket));
    }
  }

  void greet(Descriptor socket) {
    const uint64_t id = next_id_++;
    Connection& connection = connections_[id];
    prepare_connection(socket.get());
    connection.peer = peer_of(socket.get());
    connection.socket = std::move(socket);
    connection.nonces.server = random_bytes(kNonceBytes);
    connection.out = std::string(kMagic) + connection.nonces.server;
    ++num_unproven_;
    watch(EPOLL_CTL_ADD, connection.socket.get(), id, EPOLLIN);
    set_deadline(id, connection, Clock::now() + kTimeForProof);
    flush(id, connection);
  }

  void serve(uint64_t id, uint32_t events) {
    const auto found = connections_.find(id);
    if (found == connections_.end()) return;
    Connection& connection = found->second;
    if ((events & EPOLLOUT) != 0 && !flush(id, connection)) return;
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
    if (!receive(connection)) {
      // A connection that closes before it sends anything is a port scan or a peer that gave up.
      drop(id);
      return;
    }
    if (!connection.proven && !take_proof(id, connection)) return;
    handle_messages(id, connection);
  }

  static bool receive(Connection& connection) {
    char buffer[1 << 16];
    while (true) {
      const ssize_t got = recv(connection.socket.get(), buffer, sizeof buffer, 0);
      if (got > 0) {
        connection.in.append(buffer, static_cast<size_t>(got));
        if (!connection.proven && connection.in.size() >= kAnswerBytes) return true;
      } else if (got < 0 && errno == EINTR) {
        continue;
      } else {
        return got < 0 && errno == EAGAIN;
      }
    }
  }

  // False if the connection is gone, or has to say more first.
  bool take_proof(uint64_t id, Connection& connection) {
    if (connection.in.size() < kAnswerBytes) return false;
    connection.nonces.client = connection.in.substr(0, kNonceBytes);
    const std::string_view given = std::string_view(connection.in).substr(kNonceBytes, kProofBytes);
    if (!equal_in_constant_time(given, proof(secret_, Side::kClient, connection.nonces))) {
      note_refusal(connection, "it did not prove the job's secret");
      connection.out += kRefused;
      if (flush(id, connection)) drop(id);
      return false;
    }
    connection.in.erase(0, kAnswerBytes);
    connection.proven = true;
    connection.sealer = Seal(secret_, Side::kServer, connection.nonces);
    connection.opener = Seal(secret_, Side::kClient, connection.nonces);
    connection.out += kAccepted + proof(secret_, Side::kServer, connection.nonces);
    set_deadline(id, connection, std::nullopt);
    --num_unproven_;
    ++num_clients_;
    return flush(id, connection);
  }

  // A message at a time; the rest stays where it is while the client waits.
  void handle_messages(uint64_t id, Connection& connection) {
    while (!connection.wait && connection.in.size() >= kHeaderBytes) {
      const size_t size = payload_size(connection.in);
      if (size > kMaxPayloadBytes) return refuse(id, "its message is too large");
      if (connection.in.size() < kHeaderBytes + size) return;
      const std::string payload = connection.in.substr(kHeaderBytes, size);
      if (!connection.opener.is_genuine(std::string_view(connection.in).substr(4, kTagBytes), payload))
        return refuse(id, "its message was changed on the way");
      connection.in.erase(0, kHeaderBytes + size);
      if (!handle(id, connection, payload)) return;
    }
  }

  // False if the connection is gone.
  bool handle(uint64_t id, Connection& connection, const std::string& payload) {
    MessageReader request(payload);
    const Operation operation = static_cast<Operation>(request.byte());
    if (operation == Operation::kGet || operation == Operation::kWait)
      return start_wait(id, connection, operation, request);
    if (operation == Operation::kLastWill) return take_last_will(id, connection, request);
    const Table::Outcome outcome = table_.apply(operation, request);
    if (!reply(id, connection, outcome.status, outcome.payload)) return false;
    for (const std::string& key : outcome.new_values) wake(key);
    return connections_.contains(id);
  }

  bool take_last_will(uint64_t id, Connection& connection, MessageReader& request) {
    const std::vector<std::string> keys = request.list(), values = request.list();
    if (!request.at_end() || keys.size() != values.size()) return reply(id, connection, Status::kBadRequest, "");
    connection.last_will.clear();
    for (size_t at = 0; at < keys.size(); ++at) connection.last_will[keys[at]] = values[at];
    return reply(id, connection, Status::kOk, "");
  }

  bool start_wait(uint64_t id, Connection& connection, Operation operation, MessageReader& request) {
    const int64_t milliseconds = request.number();
    Wait wait{operation, request.list()};
    if (!request.at_end() || milliseconds < 0) return reply(id, connection, Status::kBadRequest, "");
    for (const std::string& key : wait.keys) waiters_[key].insert(id);
    connection.wait = std::move(wait);
    if (table_.has_all(connection.wait->keys)) return end_wait(id, connection, Status::kOk);
    set_deadline(id, connection, Clock::now() + std::chrono::milliseconds(milliseconds));
    return true;
  }

  // False if the connection is gone.
  bool end_wait(uint64_t id, Connection& connection, Status status) {
    forget_wait(id, connection);
    const Wait wait = std::move(*connection.wait);
    connection.wait.reset();
    set_deadline(id, connection, std::nullopt);
    const bool with_values = status == Status::kOk && wait.operation == Operation::kGet;
    return reply(id, connection, status, with_values ? table_.values_payload(wait.keys) : "");
  }

  void forget_wait(uint64_t id, const Connection& connection) {
    if (!connection.wait) return;
    for (const std::string& key : connection.wait->keys) {
      const auto found = waiters_.find(key);
      if (found == waiters_.end()) continue;
      found->second.erase(id);
      if (found->second.empty()) waiters_.erase(found);
    }
  }

  void wake(const std::string& key) {
    const auto found = waiters_.find(key);
    if (found == waiters_.end()) return;
    for (const uint64_t id : std::set<uint64_t>(found->second)) {
      const auto connection = connections_.find(id);
      if (connection == connections_.end() || !connection->second.wait) continue;
      if (!table_.has_all(connection->second.wait->keys)) continue;
      if (end_wait(id, connection->second, Status::kOk)) handle_messages(id, connection->second);
    }
  }

  bool reply(uint64_t id, Connection& connection, Status status, const std::string& payload) {
    connection.out += connection.sealer.seal(static_cast<char>(status) + payload);
    return flush(id, connection);
  }

  // Sends what can be sent now. False if the connection is gone.
  bool flush(uint64_t id, Connection& connection) {
    size_t done = 0;
    while (done < connection.out.size()) {
      const ssize_t sent =
          send(connection.socket.get(), connection.out.data() + done, connection.out.size() - done, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno != EAGAIN) {
        drop(id);
        return false;
      }
      if (sent < 0) break;
      done += static_cast<size_t>(sent);
    }
    connection.out.erase(0, done);
    if (const bool wants = !connection.out.empty(); wants != connection.wants_output) {
      connection.wants_output = wants;
      watch(EPOLL_CTL_MOD, connection.socket.get(), id, EPOLLIN | (wants ? uint32_t{EPOLLOUT} : 0));
    }
    return true;
  }

  void refuse(uint64_t id, const std::string& why) {
    note_refusal(connections_.at(id), why);
    drop(id);
  }

  void note_refusal(const Connection& connection, const std::string& why) {
    if (++num_refused_ <= kRefusalsShown)
      log_warning("rendezvous store at port ", port_, ": refused ", connection.peer, ": ", why,
                  num_refused_ == kRefusalsShown ? " (further ones are not shown)" : "");
  }

  void drop(uint64_t id) {
    Connection& connection = connections_.at(id);
    forget_wait(id, connection);
    set_deadline(id, connection, std::nullopt);
    if (connection.proven)
      --num_clients_;
    else
      --num_unproven_;
    const std::map<std::string, std::string> last_will = std::move(connection.last_will);
    connections_.erase(id);  // closing takes it out of epoll
    for (const auto& [key, value] : last_will) table_.set(key, value);
    for (const auto& [key, value] : last_will) wake(key);
  }

  const std::string secret_;
  Descriptor listener_, epoll_, stop_, spare_;
  int port_ = 0;
  uint64_t next_id_ = kFirstClient;
  size_t num_unproven_ = 0;
  std::atomic<int64_t> num_clients_ = 0, num_refused_ = 0;
  Table table_;
  std::map<uint64_t, Connection> connections_;
  std::map<std::string, std::set<uint64_t>> waiters_;
  std::set<std::pair<Clock::time_point, uint64_t>> deadlines_;
  std::thread thread_;
};

RendezvousServer::RendezvousServer(const Options& options) : loop_(std::make_unique<Loop>(options)) {}
RendezvousServer::~RendezvousServer() = default;
int RendezvousServer::port() const { return loop_->port(); }
int64_t RendezvousServer::num_clients() const { return loop_->num_clients(); }
int64_t RendezvousServer::num_refused() const { return loop_->num_refused(); }

}  // namespace espalier::launch
