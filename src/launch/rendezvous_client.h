// A connection to a RendezvousServer (rendezvous_server.h). Thread-safe: one request at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "launch/rendezvous_store.h"

namespace espalier::launch {

class RendezvousClient : public RendezvousStore {
 public:
  struct Options {
    std::string address;
    int port = 0;
    std::string secret;
    Milliseconds connect_timeout = std::chrono::seconds(300);  // the server may start later
    // Who hosts it, for the user ("the launcher of --node-rank 0"): connecting then says that it waits. Empty: silent.
    std::string host_in_words = {};
    // How long before the first word, and to whom (log.h): a rank that is not the first is otherwise silent.
    std::chrono::seconds patience = std::chrono::seconds(1);
    LogLevel says_at = LogLevel::kInfo;
    // Called before each try; what it throws ends the connecting.
    std::function<void()> before_each_try = {};
  };
  // UserError if nobody answers in time, if something else answers, or if the secrets differ.
  explicit RendezvousClient(const Options& options);
  ~RendezvousClient() override;
  RendezvousClient(const RendezvousClient&) = delete;
  RendezvousClient& operator=(const RendezvousClient&) = delete;

  const Options& options() const;

  // Makes the call that another thread waits in, and every later call, fail.
  void interrupt();

  void set(const std::string& key, const std::string& value) override;
  void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values);
  void append(const std::string& key, const std::string& value) override;
  std::vector<std::string> multi_get(const std::vector<std::string>& keys, Milliseconds timeout) override;
  void wait(const std::vector<std::string>& keys, Milliseconds timeout) override;
  int64_t add(const std::string& key, int64_t amount) override;
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired) override;
  void leave_will(const std::vector<std::string>& keys, const std::vector<std::string>& values) override;
  bool remove(const std::string& key);
  bool check(const std::vector<std::string>& keys) override;
  int64_t num_keys();
  std::vector<std::string> list_keys();

 private:
  class Channel;
  std::unique_ptr<Channel> channel_;
};

}  // namespace espalier::launch
