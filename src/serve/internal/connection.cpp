#include "serve/internal/connection.h"

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <utility>

#include "base/error.h"
#include "base/format.h"

namespace espalier::serve {
namespace {

namespace net = boost::asio;
namespace http = boost::beast::http;
constexpr size_t kReadBytes = 16384;
constexpr uint32_t kMostHeaderBytes = 32768;
constexpr size_t kMostKeptBytes = 1 << 20;  // of requests that come before their turn
constexpr auto kLinger = std::chrono::seconds(5);

std::string text_of(boost::beast::string_view view) { return {view.data(), view.size()}; }

// Any thread's way to the connection.
class ConnectionAnswer final : public Answer {
 public:
  ConnectionAnswer(std::shared_ptr<Connection> connection, uint64_t number)
      : connection_(std::move(connection)), number_(number) {}
  // The connection may end with this, which only its own thread may do.
  ~ConnectionAnswer() override {
    ConnectionsContext& context = connection_->context();
    if (context.is_over) return;
    net::post(context.io, [connection = std::move(connection_), number = number_] { connection->abandoned(number); });
  }
  ConnectionAnswer(const ConnectionAnswer&) = delete;
  ConnectionAnswer& operator=(const ConnectionAnswer&) = delete;

  void reply(HttpReply reply) override {
    post([reply = std::move(reply)](Connection& to, uint64_t number) { to.reply(number, reply); });
  }
  void begin_events() override {
    post([](Connection& to, uint64_t number) { to.begin_events(number); });
  }
  void send_event(const std::string& data) override {
    post([data](Connection& to, uint64_t number) { to.send_event(number, data); });
  }
  void end_events() override {
    post([](Connection& to, uint64_t number) { to.end_events(number); });
  }
  void on_gone(std::function<void()> callback) override {
    post([callback = std::move(callback)](Connection& to, uint64_t number) mutable {
      to.on_gone(number, std::move(callback));
    });
  }

 private:
  template <class Do>
  void post(Do what) {
    if (connection_->context().is_over) return;
    net::post(connection_->context().io, [connection = connection_, number = number_,
                                          what = std::move(what)]() mutable { what(*connection, number); });
  }

  std::shared_ptr<Connection> connection_;
  uint64_t number_;
};

}  // namespace

Connection::Connection(net::ip::tcp::socket socket, std::shared_ptr<ConnectionsContext> context)
    : context_(std::move(context)), socket_(std::move(socket)), timer_(context_->io) {
  context_->open.insert(this);
  ++context_->num_open;
}

Connection::~Connection() { close(); }

void Connection::start() {
  Error ignored;
  socket_.set_option(net::ip::tcp::no_delay(true), ignored);  // events are small and are waited for
  begin_request();
  read_some();
}

void Connection::begin_request() {
  parser_.emplace();
  parser_->header_limit(kMostHeaderBytes);
  parser_->body_limit(context_->options.most_body_bytes);
  parser_->eager(true);
  state_ = State::kIdle;
  has_continued_ = false;
  limit(context_->options.idle_limit);
  if (input_.size() > 0) take_input();
}

void Connection::read_some() {
  if (is_reading_ || state_ == State::kClosed || input_.size() >= kMostKeptBytes) return;
  is_reading_ = true;
  socket_.async_read_some(input_.prepare(kReadBytes), [self = shared_from_this()](Error error, size_t num_bytes) {
    self->is_reading_ = false;
    if (error) return self->close();
    self->input_.commit(num_bytes);
    self->take_input();
    self->read_some();
  });
}

void Connection::take_input() {
  if (state_ == State::kLingering) return input_.consume(input_.size());
  if (state_ != State::kIdle && state_ != State::kReading) return;
  if (state_ == State::kIdle) {
    state_ = State::kReading;
    limit(context_->options.read_limit);
  }
  parse();
}

void Connection::parse() {
  Error error;
  while (input_.size() > 0 && !parser_->is_done()) {
    const size_t used = parser_->put(input_.data(), error);
    input_.consume(used);
    if (error || used == 0) break;
  }
  if (error == http::error::need_more) error = {};
  if (error == http::error::body_limit)
    return refuse(413, concat("the body is longer than ", context_->options.most_body_bytes, " bytes"));
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return refuse(431, concat("the header is longer than ", kMostHeaderBytes, " bytes"));
  if (error) return refuse(400, concat("this is not an HTTP request: ", error.message()));
  if (parser_->is_done()) return handle();
  if (!parser_->is_header_done() || has_continued_) return;
  has_continued_ = true;
  const auto& expected = parser_->get()[http::field::expect];
  if (boost::beast::iequals(expected, "100-continue")) queue("HTTP/1.1 100 Continue\r\n\r\n");
}

void Connection::handle() {
  auto& message = parser_->get();
  ++number_;
  state_ = State::kAnswering;
  timer_.cancel();
  keeps_alive_ = message.keep_alive();
  is_head_ = message.method() == http::verb::head;
  is_old_ = message.version() < 11;
  const std::string target = text_of(message.target());
  HttpRequest request{.method = text_of(message.method_string()),
                      .path = target.substr(0, target.find('?')),
                      .host = text_of(message[http::field::host]),
                      .authorization = text_of(message[http::field::authorization]),
                      .body = std::move(message.body())};
  auto answer = std::make_shared<ConnectionAnswer>(shared_from_this(), number_);
  if (message.count(http::field::host) > 1) {
    keeps_alive_ = false;
    return reply(number_, context_->refusal(400, "more than one Host header"));
  }
  const std::string encoding = text_of(message[http::field::content_encoding]);
  if (!encoding.empty() && !boost::beast::iequals(encoding, "identity"))
    return reply(number_, context_->refusal(415, concat("the body has Content-Encoding ", encoding,
                                                        ", which this server does not read: send it as it is")));
  context_->handler(std::move(request), std::move(answer));
}

// Of a request that is not even read: what else comes on this connection could be anything.
void Connection::refuse(int status, const std::string& message) {
  ++number_;
  state_ = State::kAnswering;
  keeps_alive_ = is_head_ = false;
  timer_.cancel();
  reply(number_, context_->refusal(status, message));
}

bool Connection::is_current(uint64_t number) const {
  return number == number_ && (state_ == State::kAnswering || state_ == State::kStreaming);
}

void Connection::reply(uint64_t number, const HttpReply& reply) {
  if (!is_current(number) || state_ != State::kAnswering) return;
  keeps_alive_ = keeps_alive_ && !context_->draining;
  const std::string reason = text_of(http::obsolete_reason(static_cast<http::status>(reply.status)));
  std::string head = concat("HTTP/1.1 ", reply.status, " ", reason, "\r\nContent-Type: ", reply.type,
                            "\r\nContent-Length: ", reply.body.size(), "\r\nCache-Control: no-store\r\n",
                            "X-Content-Type-Options: nosniff\r\n");
  for (const auto& [name, value] : reply.headers) head += concat(name, ": ", value, "\r\n");
  head += keeps_alive_ ? (is_old_ ? "Connection: keep-alive\r\n\r\n" : "\r\n") : "Connection: close\r\n\r\n";
  if (!is_head_) head += reply.body;
  finish_answer();
  queue(std::move(head));
}

void Connection::begin_events(uint64_t number) {
  if (!is_current(number) || state_ != State::kAnswering) return;
  state_ = State::kStreaming;
  keeps_alive_ = keeps_alive_ && !context_->draining && !is_old_;
  queue(concat("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n",
               "X-Accel-Buffering: no\r\n", is_old_ ? "" : "Transfer-Encoding: chunked\r\n",
               keeps_alive_ ? "\r\n" : "Connection: close\r\n\r\n"));
}

void Connection::send_event(uint64_t number, const std::string& data) {
  if (!is_current(number) || state_ != State::kStreaming) return;
  const std::string event = "data: " + data + "\n\n";
  queue(is_old_ ? event : concat(format_printf("%zx\r\n", event.size()), event, "\r\n"));
  if (num_unsent_bytes_ > context_->options.most_unsent_bytes) close();
}

void Connection::end_events(uint64_t number) {
  if (!is_current(number) || state_ != State::kStreaming) return;
  finish_answer();
  queue(is_old_ ? "" : "0\r\n\r\n");
}

void Connection::on_gone(uint64_t number, std::function<void()> callback) {
  if (is_current(number))
    gone_ = std::move(callback);
  else if (state_ == State::kClosed)
    callback();
}

void Connection::abandoned(uint64_t number) {
  if (!is_current(number)) return;
  if (state_ == State::kStreaming) return close();  // an end that is not an end
  reply(number, context_->refusal(500, "the request was not answered"));
}

// Nothing more is sent for this request; what is queued is still sent.
void Connection::finish_answer() {
  gone_ = nullptr;
  state_ = State::kEnding;
}

void Connection::queue(std::string bytes) {
  if (state_ == State::kClosed) return;
  num_unsent_bytes_ += bytes.size();
  unsent_.push_back(std::move(bytes));
  if (!is_writing_) write_next();
}

void Connection::write_next() {
  writing_.clear();
  for (; !unsent_.empty(); unsent_.pop_front()) writing_ += unsent_.front();
  is_writing_ = true;
  limit(context_->options.write_limit);
  // No async_write: each part that is taken starts the time anew.
  net::async_write(
      socket_, net::buffer(writing_),
      [self = shared_from_this()](const Error& error, size_t) -> size_t {
        if (error) return 0;
        self->limit(self->context_->options.write_limit);
        return kReadBytes * 4;
      },
      [self = shared_from_this()](Error error, size_t) { self->written(error); });
}

void Connection::written(Error error) {
  is_writing_ = false;
  if (state_ == State::kClosed) return;
  if (error) return close();
  num_unsent_bytes_ -= writing_.size();
  timer_.cancel();
  if (!unsent_.empty()) return write_next();
  if (state_ == State::kReading) return limit(context_->options.read_limit);
  if (state_ != State::kEnding) return;
  if (!keeps_alive_ || context_->draining) return linger();
  begin_request();
  read_some();
}

// A connection that is closed with unread bytes loses the reply on its way: the other side is given a while to see it.
void Connection::linger() {
  state_ = State::kLingering;
  Error ignored;
  socket_.shutdown(net::ip::tcp::socket::shutdown_send, ignored);
  input_.consume(input_.size());
  limit(kLinger);
  read_some();
}

void Connection::limit(std::chrono::milliseconds time) {
  timer_.expires_after(time);
  timer_.async_wait([weak = weak_from_this()](Error error) {
    const std::shared_ptr<Connection> self = weak.lock();
    if (!error && self && self->timer_.expiry() <= std::chrono::steady_clock::now()) self->out_of_time();
  });
}

void Connection::out_of_time() {
  if (state_ == State::kReading && !is_writing_) return refuse(408, "the request was not completed in time");
  close();
}

void Connection::drain() {
  if (state_ == State::kIdle) close();
}

void Connection::close() {
  if (state_ == State::kClosed) return;
  state_ = State::kClosed;
  context_->open.erase(this);
  --context_->num_open;
  timer_.cancel();
  Error ignored;
  socket_.close(ignored);
  if (const auto gone = std::exchange(gone_, nullptr)) gone();
}

}  // namespace espalier::serve
