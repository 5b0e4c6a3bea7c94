// HTTP for answers that come slowly and in parts, to many clients at once.
//
// One thread reads and writes all connections and waits for none. It calls the handler with each whole request; the
// handler keeps the Answer, returns at once, and may answer from any thread, at any time. Clients that go away, take
// too long with a request, or do not take what is sent to them lose their connection, and the Answer is notified.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace espalier::serve {

struct HttpRequest {
  std::string method, path;  // "POST", "/v1/completions": without what follows a '?'
  std::string host;          // of the header
  std::string authorization;
  std::string body;
};

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// Where the answer to a request goes. All but the destructor may be called by any thread; what comes after the end, or
// when nobody listens any more, is dropped. One that is destroyed without an answer gives status 500.
class Answer {
 public:
  virtual ~Answer() = default;
  virtual void reply(HttpReply reply) = 0;
  // Or in parts, as server-sent events: `data` of each event, until the end.
  virtual void begin_events() = 0;
  virtual void send_event(const std::string& data) = 0;
  virtual void end_events() = 0;
  // Called once if the client leaves before the end, by the thread of the connections; at once if it has left.
  virtual void on_gone(std::function<void()> callback) = 0;
};

using HttpHandler = std::function<void(HttpRequest, std::shared_ptr<Answer>)>;
// Turns what is wrong with a request before anybody could handle it into a reply.
using HttpRefusal = std::function<HttpReply(int status, const std::string& message)>;

struct HttpOptions {
  std::string host = "127.0.0.1";
  int port = 0;                                   // 0: any free one
  int64_t most_connections = 4096;                // more are closed at once
  uint64_t most_body_bytes = 16u << 20;           // of a request: 413
  size_t most_unsent_bytes = 4u << 20;            // of a stream: who takes less is disconnected
  std::chrono::milliseconds read_limit{60'000};   // for a request once it has begun: 408
  std::chrono::milliseconds idle_limit{120'000};  // between two requests
  std::chrono::milliseconds write_limit{60'000};  // in which nothing of what is to be sent was taken
};

class HttpServer {
 public:
  // Listens, or throws a UserError that names the address.
  HttpServer(const HttpOptions& options, HttpHandler handler, HttpRefusal refusal);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  int64_t num_connections() const;
  // No new connections from now on, and those that are open end with the answer that they are waiting for.
  void drain();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace espalier::serve
