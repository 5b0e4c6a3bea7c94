#include "launch/copy_link.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/sha256.h"
#include "launch/internal/protocol.h"
#include "launch/internal/socket.h"

namespace espalier::launch {
namespace {

using internal::Clock;
using internal::Descriptor;
using internal::MessageReader;
using internal::MessageWriter;
using internal::Side;
using internal::Transfer;

constexpr std::string_view kGreeting = "espalier copies2";
constexpr auto kTimeForCopyProof = std::chrono::seconds(10), kTimeToConnect = std::chrono::seconds(10);
constexpr int64_t kCopyPieceBytes = 16 * kSnapshotBlockBytes;  // summed while a cache holds it
constexpr int64_t kMostHeadBytes = SnapshotSlots::kMostTextBytes + 1024;
constexpr size_t kMostNameBytes = 1000;
constexpr char kWhole = 'W', kWrongSum = 'S';

// What ends a link.
struct Broken {
  std::string why;
};

// The job's secret is also proved to the rendezvous store, and by other ranks to each other: what is said there is
// worth nothing here.
std::string key_of(const std::string& secret, const std::string& from, const std::string& to) {
  return concat("copies of the state\n", from, "\n", to, "\n", secret);
}

// A socket that another thread may close.
class CopyConnection {
 public:
  explicit CopyConnection(double patience)
      : patience_(std::chrono::duration_cast<Clock::duration>(Seconds(patience))) {}

  void open(Descriptor socket) {
    const std::lock_guard lock(mutex_);
    if (is_closed_) throw Broken{"closed"};
    socket_ = std::move(socket);
  }
  // What waits for it ends.
  void close() {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    if (socket_.valid()) shutdown(socket_.get(), SHUT_RDWR);
  }
  void send(std::string_view data) { check(internal::send_all(socket_.get(), data, Clock::now() + patience_)); }
  void receive(char* data, size_t size) { receive_until(data, size, Clock::now() + patience_); }
  std::string receive(size_t size) {
    std::string text(size, '\0');
    receive(text.data(), size);
    return text;
  }
  void receive_until(char* data, size_t size, Clock::time_point deadline) {
    check(internal::receive_all(socket_.get(), data, size, deadline));
  }

 private:
  using Seconds = std::chrono::duration<double>;
  static void check(Transfer transfer) {
    if (transfer == Transfer::kTimedOut) throw Broken{"nothing moved for too long"};
    if (transfer == Transfer::kClosed) throw Broken{"the connection was closed"};
  }

  const Clock::duration patience_;
  std::mutex mutex_;
  bool is_closed_ = false;
  Descriptor socket_;  // set once
};

std::string size_text(size_t size) {
  MessageWriter writer;
  writer.number(static_cast<int64_t>(size));
  return writer.text();
}

// `name`: of this end, and of the other.
void prove_as_receiver(CopyConnection& connection, const std::string& key, const std::string& name) {
  internal::Nonces nonces{random_bytes(internal::kNonceBytes), {}};
  connection.send(concat(kGreeting, nonces.server, size_text(name.size()), name));
  std::string answer(internal::kNonceBytes + internal::kProofBytes, '\0');
  connection.receive_until(answer.data(), answer.size(), Clock::now() + kTimeForCopyProof);
  nonces.client = answer.substr(0, internal::kNonceBytes);
  if (!equal_in_constant_time(answer.substr(internal::kNonceBytes), proof(key, Side::kClient, nonces)))
    throw Broken{"a process without the job's secret called, or another rank, or one of another run"};
  connection.send(proof(key, Side::kServer, nonces));
}

void prove_as_sender(CopyConnection& connection, const std::string& key, const std::string& name) {
  const std::string hello = connection.receive(kGreeting.size() + internal::kNonceBytes + size_text(0).size());
  if (!hello.starts_with(kGreeting)) throw Broken{"another program listens there"};
  const int64_t size = MessageReader(hello.substr(kGreeting.size() + internal::kNonceBytes)).number();
  if (size < 0 || size > static_cast<int64_t>(kMostNameBytes)) throw Broken{"another program listens there"};
  const std::string listens = connection.receive(static_cast<size_t>(size));
  if (listens != name) throw Broken{concat(listens, " listens there, and ", name, " is meant")};
  const internal::Nonces nonces{hello.substr(kGreeting.size(), internal::kNonceBytes),
                                random_bytes(internal::kNonceBytes)};
  connection.send(nonces.client + proof(key, Side::kClient, nonces));
  if (!equal_in_constant_time(connection.receive(internal::kProofBytes), proof(key, Side::kServer, nonces)))
    throw Broken{"who listens there does not know the job's secret"};
}

std::string to_text(const SnapshotHead& head, int64_t kept_step) {
  MessageWriter writer;
  writer.number(head.step), writer.number(head.bytes), writer.number(kept_step);
  writer.number(static_cast<int64_t>(head.identity)), writer.number(static_cast<int64_t>(head.checksum));
  writer.bytes(head.text);
  return writer.text();
}

struct Announced {
  SnapshotHead head;
  int64_t kept_step = 0;
};

Announced from_text(const std::string& text, int64_t capacity) {
  MessageReader reader(text);
  Announced announced;
  SnapshotHead& head = announced.head;
  head.step = reader.number(), head.bytes = reader.number(), announced.kept_step = reader.number();
  head.identity = static_cast<uint64_t>(reader.number()), head.checksum = static_cast<uint64_t>(reader.number());
  head.text = reader.bytes();
  if (!reader.at_end() || head.step < 1 || head.bytes < 0 || head.bytes > capacity)
    throw Broken{"a copy was announced that does not fit"};
  return announced;
}

}  // namespace

class CopyLink::Receiver {
 public:
  Receiver(const Options& options, std::string name)
      : secret_(options.secret),
        name_(std::move(name)),
        patience_(options.patience_seconds),
        listener_(internal::listen_on("", 0, "receive copies of the state of another machine's rank")) {}
  ~Receiver() {
    stopping_ = true;
    shutdown(listener_.get(), SHUT_RDWR);
    {
      const std::lock_guard lock(mutex_);
      if (connection_) connection_->close();
    }
    if (thread_.joinable()) thread_.join();
  }
  int port() const { return internal::port_of(listener_); }
  void start(SnapshotSlots& slots, const std::string& from) {
    thread_ = std::thread([this, &slots, key = key_of(secret_, from, name_)] { serve(slots, key); });
  }

 private:
  // One caller that proves itself; what calls otherwise is left alone. Its sender says why a link has ended.
  void serve(SnapshotSlots& slots, const std::string& key) {
    bool is_proven = false;
    while (!stopping_ && !is_proven) {
      try {
        CopyConnection* const connection = accept();
        if (connection == nullptr) continue;
        prove_as_receiver(*connection, key, name_);
        is_proven = true;
        while (true) receive_one(*connection, slots);
      } catch (const Broken&) {  // closed for good: one that is only shut down leaves a sender waiting for room
        const std::lock_guard lock(mutex_);
        connection_.reset();
      }
    }
  }

  CopyConnection* accept() {
    pollfd entry = {listener_.get(), POLLIN, 0};
    poll(&entry, 1, -1);
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return nullptr;
    internal::prepare_connection(socket.get());
    const std::lock_guard lock(mutex_);
    connection_.emplace(patience_);
    if (stopping_) connection_->close();
    connection_->open(std::move(socket));
    return &*connection_;
  }

  void receive_one(CopyConnection& connection, SnapshotSlots& slots) {
    std::string size(8, '\0');
    connection.receive_until(size.data(), size.size(), Clock::time_point::max());
    const int64_t head_bytes = MessageReader(size).number();
    if (head_bytes < 0 || head_bytes > kMostHeadBytes) throw Broken{"a head that is too large"};
    const Announced announced = from_text(connection.receive(static_cast<size_t>(head_bytes)), slots.capacity());
    const SnapshotHead& head = announced.head;
    int kept = -1;
    for (const SnapshotHead& there : slots.heads())
      if (there.step == announced.kept_step && there.identity == head.identity) kept = there.slot;
    const int slot = slots.slot_to_write(kept);
    const bool is_right = receive_data(connection, slots.begin(slot), head.bytes) == head.checksum;
    if (is_right) slots.finish(slot, head);
    connection.send(std::string(1, is_right ? kWhole : kWrongSum));
  }

  // Their checksum, as snapshot_checksum has it.
  static uint64_t receive_data(CopyConnection& connection, uint8_t* data, int64_t bytes) {
    Hasher of_blocks;
    for (int64_t begin = 0; begin < bytes; begin += kCopyPieceBytes) {
      const int64_t end = std::min(begin + kCopyPieceBytes, bytes);
      connection.receive(reinterpret_cast<char*>(data + begin), static_cast<size_t>(end - begin));
      for (int64_t block = begin; block < end; block += kSnapshotBlockBytes) {
        const uint64_t sum = hash64(data + block, static_cast<size_t>(std::min(kSnapshotBlockBytes, end - block)));
        of_blocks.update(&sum, sizeof sum);
      }
    }
    return of_blocks.digest();
  }

  const std::string secret_, name_;
  const double patience_;
  const Descriptor listener_;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::optional<CopyConnection> connection_;
  std::thread thread_;
};

class CopyLink::Sender {
 public:
  Sender(const Options& options, const std::string& from, const End& to)
      : key_(key_of(options.secret, from, to.name)),
        address_(to.address),
        name_(to.name),
        connection_(options.patience_seconds),
        thread_([this] { serve(); }) {}
  ~Sender() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    connection_.close();
    thread_.join();
  }

  void send(const SnapshotHead& head, const uint8_t* data, int64_t kept_step) {
    {
      const std::lock_guard lock(mutex_);
      ESPALIER_CHECK(state_ != State::kUnderWay, "a copy is under way");
      if (state_ == State::kBroken) return;
      state_ = State::kUnderWay;
      head_ = head, data_ = data, kept_step_ = kept_step;
      start_ = Clock::now();
    }
    changed_.notify_all();
  }
  State state() const {
    const std::lock_guard lock(mutex_);
    return state_;
  }
  State wait(double seconds) const {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return state_ != State::kUnderWay; });
    return state_;
  }
  double seconds() const {
    const std::lock_guard lock(mutex_);
    return seconds_;
  }
  std::string trouble() const {
    const std::lock_guard lock(mutex_);
    return trouble_;
  }

 private:
  void serve() {
    try {
      connect();
      while (wait_for_copy()) {
        const bool is_whole = send_one();
        note(is_whole ? State::kArrived : State::kDamaged);
      }
    } catch (const Broken& broken) {
      connection_.close();  // who listens may serve another
      note(State::kBroken, concat("the connection to ", address_, ": ", broken.why));
    }
  }

  void note(State state, const std::string& trouble = "") {
    {
      const std::lock_guard lock(mutex_);
      state_ = state, trouble_ = trouble;
      seconds_ = std::chrono::duration<double>(Clock::now() - start_).count();
    }
    changed_.notify_all();
  }

  void connect() {
    const size_t colon = address_.rfind(':');
    std::string reason;
    Descriptor socket = internal::try_to_connect(address_.substr(0, colon), std::stoi(address_.substr(colon + 1)),
                                                 Clock::now() + kTimeToConnect, reason);
    if (!socket.valid()) throw Broken{reason};
    connection_.open(std::move(socket));
    prove_as_sender(connection_, key_, name_);
  }

  bool wait_for_copy() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || state_ == State::kUnderWay; });
    return !stopping_;
  }

  bool send_one() {
    const std::string text = to_text(head_, kept_step_);
    connection_.send(size_text(text.size()) + text);
    for (int64_t begin = 0; begin < head_.bytes; begin += kCopyPieceBytes)
      connection_.send({reinterpret_cast<const char*>(data_ + begin),
                        static_cast<size_t>(std::min(kCopyPieceBytes, head_.bytes - begin))});
    const char answer = connection_.receive(1)[0];
    if (answer != kWhole && answer != kWrongSum) throw Broken{"an answer that nobody understands"};
    return answer == kWhole;
  }

  const std::string key_, address_, name_;  // of the other end
  CopyConnection connection_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool stopping_ = false;
  State state_ = State::kIdle;
  std::string trouble_;
  double seconds_ = 0;
  Clock::time_point start_;
  // Of the copy that is under way.
  SnapshotHead head_;
  const uint8_t* data_ = nullptr;
  int64_t kept_step_ = 0;
  std::thread thread_;
};

CopyLink::CopyLink(const Options& options)
    : options_(options),
      name_(concat(options.name.substr(0, kMostNameBytes / 2), ", link ", hex_digits(random_bytes(8)))) {
  receiver_ = std::make_unique<Receiver>(options_, name_);
}
CopyLink::~CopyLink() = default;

CopyLink::End CopyLink::end() const {
  return {concat(internal::address_for_others(options_.master_address), ":", receiver_->port()), name_};
}
void CopyLink::receive_into(SnapshotSlots& slots, const End& from) { receiver_->start(slots, from.name); }
void CopyLink::send_to(const End& to) { sender_ = std::make_unique<Sender>(options_, name_, to); }
void CopyLink::send(const SnapshotHead& head, const uint8_t* data, int64_t kept_step) {
  sender_->send(head, data, kept_step);
}
CopyLink::State CopyLink::state() const { return sender_ ? sender_->state() : State::kIdle; }
CopyLink::State CopyLink::wait(double seconds) const { return sender_ ? sender_->wait(seconds) : State::kIdle; }
double CopyLink::seconds() const { return sender_ ? sender_->seconds() : 0; }
std::string CopyLink::trouble() const { return sender_ ? sender_->trouble() : ""; }

}  // namespace espalier::launch
