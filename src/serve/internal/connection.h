// One connection of the HTTP server: requests one after another, each with one answer.
//
// It reads all the time, so that it learns at once when the client leaves. What comes while an answer is under way is
// kept for the next request, up to a bound.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <deque>
#include <optional>
#include <unordered_set>

#include "serve/http_server.h"

namespace espalier::serve {

class Connection;

// What the connections of a server share. Of its thread, but for the number.
struct ConnectionsContext {
  HttpOptions options;
  HttpHandler handler;
  HttpRefusal refusal;
  std::unordered_set<Connection*> open;
  std::atomic<int64_t> num_open{0};
  std::atomic<bool> is_over{false};  // nobody runs `io` any more
  bool draining = false;
  boost::asio::io_context io{1};
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, std::shared_ptr<ConnectionsContext> context);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start();
  // It ends now if it waits for a request, and else after the answer.
  void drain();
  void close();

  // What an Answer asks for, in the thread of the connections; `number` tells of which request.
  void reply(uint64_t number, const HttpReply& reply);
  void begin_events(uint64_t number);
  void send_event(uint64_t number, const std::string& data);
  void end_events(uint64_t number);
  void on_gone(uint64_t number, std::function<void()> callback);
  void abandoned(uint64_t number);
  ConnectionsContext& context() { return *context_; }

 private:
  enum class State { kIdle, kReading, kAnswering, kStreaming, kEnding, kLingering, kClosed };
  using Error = boost::system::error_code;

  void begin_request();
  void read_some();
  void take_input();
  void parse();
  void handle();
  void refuse(int status, const std::string& message);
  void queue(std::string bytes);
  void write_next();
  void written(Error error);
  void finish_answer();
  void linger();
  void limit(std::chrono::milliseconds time);
  void out_of_time();
  bool is_current(uint64_t number) const;

  std::shared_ptr<ConnectionsContext> context_;  // an Answer may outlive the server
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  boost::beast::flat_buffer input_;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  State state_ = State::kIdle;
  uint64_t number_ = 0;  // of the request
  bool keeps_alive_ = false, is_head_ = false, is_reading_ = false, is_writing_ = false, has_continued_ = false;
  bool is_old_ = false;  // HTTP/1.0: no chunks
  std::function<void()> gone_;
  std::string writing_;
  std::deque<std::string> unsent_;
  size_t num_unsent_bytes_ = 0;
};

}  // namespace espalier::serve
