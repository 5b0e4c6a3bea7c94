// Where the ranks of a job meet: a key-value store over TCP that talks only to peers that prove the job's secret.
//
//   RendezvousServer server({.port = 29400, .secret = job_secret(run_id)});
//   ... RendezvousClient client({.address = host, .port = server.port(), .secret = ...});
//
// Keys and values are bytes. One thread serves any number of clients; a client that waits costs nothing. Peers that
// prove nothing within ten seconds, or wrongly, are cut off and logged.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace espalier::launch {

class RendezvousServer {
 public:
  struct Options {
    std::string address;  // to listen at; empty: all of this machine's
    int port = 0;         // 0: a free one
    std::string secret;
  };
  // UserError if the port is taken.
  explicit RendezvousServer(const Options& options);
  ~RendezvousServer();  // cuts off all clients
  RendezvousServer(const RendezvousServer&) = delete;
  RendezvousServer& operator=(const RendezvousServer&) = delete;

  int port() const;
  int64_t num_clients() const;  // connected now, with proof
  int64_t num_refused() const;  // so far

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace espalier::launch
