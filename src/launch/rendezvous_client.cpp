#include "launch/rendezvous_client.h"

#include <sys/socket.h>

#include <mutex>
#include <thread>

#include "base/format.h"
#include "base/sha256.h"
#include "launch/internal/protocol.h"
#include "launch/internal/socket.h"
#include "launch/secret.h"
#include "launch/wait_report.h"

namespace espalier::launch {

using namespace internal;

namespace {

// Beyond what the server itself may take to answer.
constexpr auto kTimeToAnswer = std::chrono::seconds(60);
constexpr auto kTimeOfATry = std::chrono::seconds(5);  // a machine that does not answer at all
constexpr auto kTimeForServersProof = std::chrono::seconds(20);

std::string place_of(const RendezvousClient::Options& options) { return concat(options.address, ":", options.port); }

MessageWriter request_of(Operation operation) {
  MessageWriter writer;
  writer.byte(static_cast<uint8_t>(operation));
  return writer;
}

MessageWriter request_of(Operation operation, const std::string& key) {
  MessageWriter writer = request_of(operation);
  writer.bytes(key);
  return writer;
}

}  // namespace

class RendezvousClient::Channel {
 public:
  explicit Channel(Options options) : options_(std::move(options)) {
    connect();
    prove();
  }

  const Options& options() const { return options_; }

  // Without the lock, which the waiting thread holds. The number of the descriptor does not change until the end.
  void interrupt() { shutdown(descriptor_, SHUT_RDWR); }

  // The answer's status and what follows it.
  Status ask(const MessageWriter& request, std::string& answer, Milliseconds patience = Milliseconds(0)) {
    const std::lock_guard lock(mutex_);
    const Clock::time_point deadline = Clock::now() + patience + kTimeToAnswer;
    if (is_lost_) lost("the connection is closed");
    check(send_all(socket_.get(), sealer_.seal(request.text()), deadline));
    std::string header = receive(kHeaderBytes, deadline);
    const size_t size = payload_size(header);
    if (size < 1 || size > kMaxPayloadBytes) lost("it sent something malformed");
    answer = receive(size, deadline);
    if (!opener_.is_genuine(std::string_view(header).substr(4), answer)) lost("its answer was changed on the way");
    const Status status = static_cast<Status>(answer.front());
    answer.erase(0, 1);
    return status;
  }

  // For requests that succeed unless the connection fails.
  std::string ask(const MessageWriter& request) {
    std::string answer;
    const Status status = ask(request, answer);
    if (status == Status::kBadRequest)
      throw UserError("the rendezvous store refused a request: is a counter's key also set to text?");
    return answer;
  }

 private:
  [[noreturn]] void lost(const std::string& why) {
    is_lost_ = true;  // the descriptor stays until the end: interrupt() may be using it
    throw RendezvousLost(concat("lost the rendezvous store at ", place_of(options_), ": ", why,
                                ". The launcher or rank 0, which hosts it, has ended; its own message tells why."));
  }

  void check(Transfer transfer) {
    if (transfer == Transfer::kTimedOut) lost("no answer");
    if (transfer == Transfer::kClosed) lost("it closed the connection");
  }

  std::string receive(size_t size, Clock::time_point deadline) {
    std::string data(size, '\0');
    check(receive_all(socket_.get(), data.data(), size, deadline));
    return data;
  }

  // Again and again until someone answers: ranks start in any order.
  void connect() {
    const Clock::time_point start = Clock::now(), deadline = start + options_.connect_timeout;
    auto pause = Milliseconds(20);
    std::string reason;
    WaitReport report(options_.connect_timeout, options_.patience, options_.says_at);
    while (true) {
      if (options_.before_each_try) options_.before_each_try();
      socket_ = try_to_connect(options_.address, options_.port, std::min(deadline, Clock::now() + kTimeOfATry), reason);
      if (socket_.valid()) {
        descriptor_ = socket_.get();
        return;
      }
      if (Clock::now() + pause >= deadline) break;
      if (!options_.host_in_words.empty())
        report.look(concat(options_.host_in_words, ", whose rendezvous store is to be at ", place_of(options_), " (",
                           reason, ")"));
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, Milliseconds(500));
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    throw RendezvousTimeout(
        concat("no rendezvous store of the ranks at ", place_of(options_), " after ", format_duration(seconds), ": ",
               reason, ". Does the rank or launcher that hosts it run, and may this machine reach it?"),
        ExitCode::kLostPeer);
  }

  void prove() {
    const Clock::time_point deadline = Clock::now() + kTimeForServersProof;
    std::string hello(kHelloBytes, '\0');
    const bool heard = receive_all(socket_.get(), hello.data(), hello.size(), deadline) == Transfer::kDone;
    if (!heard || !hello.starts_with(kMagic))
      throw UserError(concat(place_of(options_),
                             " is not a rendezvous store of Espalier: another program listens there. Choose "
                             "another port (MASTER_PORT, --master-port or --rdzv-endpoint)."));
    const Nonces nonces{hello.substr(kMagic.size()), random_bytes(kNonceBytes)};
    check(send_all(socket_.get(), nonces.client + proof(options_.secret, Side::kClient, nonces), deadline));
    if (receive(1, deadline).front() != kAccepted) wrong_secret("refused this process");
    if (!equal_in_constant_time(receive(kProofBytes, deadline), proof(options_.secret, Side::kServer, nonces)))
      wrong_secret("does not know this job's secret");
    sealer_ = Seal(options_.secret, Side::kClient, nonces);
    opener_ = Seal(options_.secret, Side::kServer, nonces);
  }

  [[noreturn]] void wrong_secret(const std::string& what) {
    throw UserError(concat("the rendezvous store at ", place_of(options_), " ", what,
                           ": the secrets differ. Another job may use this port (choose another), or the machines do "
                           "not share the home folder: then set ",
                           kSecretVariable, " or ", kSecretFileVariable, " for all of them."));
  }

  const Options options_;
  std::mutex mutex_;
  Descriptor socket_;
  int descriptor_ = -1;
  bool is_lost_ = false;
  Seal sealer_, opener_;
};

RendezvousClient::RendezvousClient(const Options& options) : channel_(std::make_unique<Channel>(options)) {}
RendezvousClient::~RendezvousClient() = default;
const RendezvousClient::Options& RendezvousClient::options() const { return channel_->options(); }
void RendezvousClient::interrupt() { channel_->interrupt(); }

void RendezvousClient::set(const std::string& key, const std::string& value) {
  MessageWriter request = request_of(Operation::kSet, key);
  request.bytes(value);
  channel_->ask(request);
}

void RendezvousClient::multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  ESPALIER_CHECK(keys.size() == values.size(), keys.size(), " keys, ", values.size(), " values");
  MessageWriter request = request_of(Operation::kMultiSet);
  request.list(keys);
  request.list(values);
  channel_->ask(request);
}

void RendezvousClient::leave_will(const std::vector<std::string>& keys, const std::vector<std::string>& values) {
  ESPALIER_CHECK(keys.size() == values.size(), keys.size(), " keys, ", values.size(), " values");
  MessageWriter request = request_of(Operation::kLastWill);
  request.list(keys);
  request.list(values);
  channel_->ask(request);
}

void RendezvousClient::append(const std::string& key, const std::string& value) {
  MessageWriter request = request_of(Operation::kAppend, key);
  request.bytes(value);
  channel_->ask(request);
}

std::vector<std::string> RendezvousClient::multi_get(const std::vector<std::string>& keys, Milliseconds timeout) {
  MessageWriter request = request_of(Operation::kGet);
  request.number(timeout.count());
  request.list(keys);
  std::string answer;
  if (channel_->ask(request, answer, timeout) != Status::kOk)
    throw RendezvousTimeout(concat("nobody has set ", join(keys, ", "), " in the ranks' rendezvous store within ",
                                   format_duration(static_cast<double>(timeout.count()) / 1e3)));
  return MessageReader(answer).list();
}

void RendezvousClient::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  MessageWriter request = request_of(Operation::kWait);
  request.number(timeout.count());
  request.list(keys);
  std::string answer;
  if (channel_->ask(request, answer, timeout) != Status::kOk)
    throw RendezvousTimeout(concat("not all of ", join(keys, ", "), " are in the ranks' rendezvous store after ",
                                   format_duration(static_cast<double>(timeout.count()) / 1e3)));
}

int64_t RendezvousClient::add(const std::string& key, int64_t amount) {
  MessageWriter request = request_of(Operation::kAdd, key);
  request.number(amount);
  return MessageReader(channel_->ask(request)).number();
}

std::string RendezvousClient::compare_set(const std::string& key, const std::string& expected,
                                          const std::string& desired) {
  MessageWriter request = request_of(Operation::kCompareSet, key);
  request.bytes(expected);
  request.bytes(desired);
  return MessageReader(channel_->ask(request)).bytes();
}

bool RendezvousClient::remove(const std::string& key) {
  return MessageReader(channel_->ask(request_of(Operation::kDelete, key))).number() != 0;
}

bool RendezvousClient::check(const std::vector<std::string>& keys) {
  MessageWriter request = request_of(Operation::kCheck);
  request.list(keys);
  return MessageReader(channel_->ask(request)).number() != 0;
}

int64_t RendezvousClient::num_keys() { return MessageReader(channel_->ask(request_of(Operation::kNumKeys))).number(); }

std::vector<std::string> RendezvousClient::list_keys() {
  return MessageReader(channel_->ask(request_of(Operation::kListKeys))).list();
}

}  // namespace espalier::launch
