#include "dist/rendezvous.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <exception>
#include <thread>

#include "base/error.h"
#include "launch/rendezvous_client.h"
#include "launch/rendezvous_server.h"
#include "launch/secret.h"

namespace espalier::dist {
namespace {

using Bytes = std::vector<uint8_t>;

std::string text_of(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }
Bytes bytes_of(const std::string& text) { return {text.begin(), text.end()}; }

// The server of a rank 0 without a launcher. Its end waits for the other ranks to leave, unless this one is failing.
class HostedServer {
 public:
  explicit HostedServer(const launch::RendezvousServer::Options& options) : server_(options) {}
  ~HostedServer() {
    constexpr int kTries = 500;
    for (int tries = 0; tries < kTries && server_.num_clients() > 0 && std::uncaught_exceptions() == 0; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  int port() const { return server_.port(); }

 private:
  launch::RendezvousServer server_;
};

class LaunchStore : public c10d::Store {
 public:
  LaunchStore(const launch::RendezvousClient::Options& options, std::shared_ptr<HostedServer> server)
      : server_(std::move(server)), client_(std::make_unique<launch::RendezvousClient>(options)) {}
  ~LaunchStore() override { client_.reset(); }  // before the server, which waits for it

  c10::intrusive_ptr<c10d::Store> clone() override {
    auto copy = c10::make_intrusive<LaunchStore>(client_->options(), server_);
    copy->setTimeout(timeout_);
    return copy;
  }
  void set(const std::string& key, const Bytes& value) override { client_->set(key, text_of(value)); }
  Bytes get(const std::string& key) override { return bytes_of(client_->get(key, timeout_)); }
  int64_t add(const std::string& key, int64_t value) override { return client_->add(key, value); }
  bool deleteKey(const std::string& key) override { return client_->remove(key); }
  bool check(const std::vector<std::string>& keys) override { return client_->check(keys); }
  int64_t getNumKeys() override { return client_->num_keys(); }
  void wait(const std::vector<std::string>& keys) override { client_->wait(keys, timeout_); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override {
    client_->wait(keys, timeout);
  }
  Bytes compareSet(const std::string& key, const Bytes& expected, const Bytes& desired) override {
    return bytes_of(client_->compare_set(key, text_of(expected), text_of(desired)));
  }
  void append(const std::string& key, const Bytes& value) override { client_->append(key, text_of(value)); }
  std::vector<Bytes> multiGet(const std::vector<std::string>& keys) override {
    std::vector<Bytes> values;
    for (const std::string& value : client_->multi_get(keys, timeout_)) values.push_back(bytes_of(value));
    return values;
  }
  void multiSet(const std::vector<std::string>& keys, const std::vector<Bytes>& values) override {
    std::vector<std::string> texts;
    for (const Bytes& value : values) texts.push_back(text_of(value));
    client_->multi_set(keys, texts);
  }
  bool hasExtendedApi() const override { return true; }
  std::vector<std::string> listKeys() override { return client_->list_keys(); }

 private:
  std::shared_ptr<HostedServer> server_;
  std::unique_ptr<launch::RendezvousClient> client_;
};

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

c10::intrusive_ptr<c10d::Store> connect_to_tcp_store(const launch::RankEnvironment& place) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(place.master_port);
  options.waitWorkers = false;
  try {
    return c10::make_intrusive<c10d::TCPStore>(place.master_address, options);
  } catch (const c10::Error& error) {
    throw UserError(concat("cannot reach the launcher's rendezvous store at ", place.master_address, ":",
                           place.master_port, ": ", error.what_without_backtrace()));
  }
}

c10::intrusive_ptr<c10d::Store> connect_to_our_store(const launch::RankEnvironment& place,
                                                     const std::function<bool()>& stopped) {
  launch::RendezvousClient::Options options{place.master_address, place.master_port, launch::job_secret(place.run_id)};
  options.host_in_words = place.launcher_store ? "espalier launch" : "rank 0";
  options.patience = std::chrono::seconds(5);
  options.says_at = LogLevel::kQuiet;
  options.before_each_try = [stopped] {
    if (stopped && stopped()) throw StoppedBeforeStart("this process was asked to stop");
  };
  std::shared_ptr<HostedServer> server;
  if (place.rank == 0 && !place.launcher_store) {
    const std::string listen_at = is_loopback(place.master_address) ? place.master_address : "";
    server =
        std::make_shared<HostedServer>(launch::RendezvousServer::Options{listen_at, place.master_port, options.secret});
    options.port = server->port();
  }
  return c10::make_intrusive<LaunchStore>(options, std::move(server));
}

}  // namespace

c10::intrusive_ptr<c10d::Store> connect_rendezvous(const launch::RankEnvironment& place,
                                                   const std::function<bool()>& stopped) {
  auto store = place.foreign_store ? connect_to_tcp_store(place) : connect_to_our_store(place, stopped);
  return c10::make_intrusive<c10d::PrefixStore>(concat("ranks/", place.restart_count), std::move(store));
}

}  // namespace espalier::dist
