#include "web/server.h"

#include <pthread.h>
#include <sys/random.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/format.h"
#include "base/host_name.h"
#include "web/listener.h"

namespace espalier::web {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = asio::ip::tcp;

constexpr uint32_t kMostHeaderBytes = 16384;

// 128 bits: nobody guesses them.
std::string make_secret() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
    throw UserError("the system provides no random numbers, from which the secret in the page's address is made");
  std::string text;
  for (const unsigned char byte : bytes) text += format_printf("%02x", byte);
  return text;
}

struct Shared {
  ServerOptions options;
  Handler handler;
  std::string secret = make_secret();
  std::vector<std::string> names;  // by which this machine may be called
  int num_connections = 0;         // of the thread of the connections only
  asio::thread_pool* workers = nullptr;
};

// One connection: reads a request, answers it, and begins again. It lives as long as something is pending for it.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Tcp::socket socket, Shared& shared) : stream_(std::move(socket)), shared_(shared) {
    ++shared_.num_connections;
  }
  ~Connection() { --shared_.num_connections; }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void read() {
    parser_.emplace();
    parser_->header_limit(kMostHeaderBytes);
    parser_->body_limit(0);  // nothing is ever sent to us
    limit_time();
    http::async_read(stream_, buffer_, *parser_, [self = shared_from_this()](beast::error_code error, size_t) {
      if (error == http::error::header_limit || error == http::error::body_limit) return self->refuse(413, "too large");
      if (!error) self->answer();
    });
  }

 private:
  void limit_time() { stream_.expires_after(std::chrono::seconds(shared_.options.timeout_seconds)); }

  void refuse(int status, const std::string& why) { write({status, "text/plain; charset=utf-8", why + "\n"}); }

  void answer() {
    const auto& message = parser_->get();
    const auto text = [](beast::string_view view) { return std::string(view.data(), view.size()); };
    if (message.count(http::field::host) != 1 || !is_own_host(text(message[http::field::host]), shared_.names))
      return refuse(403, "this address is not one of the server");
    if (message.method() != http::verb::get && message.method() != http::verb::head)
      return refuse(405, "only GET and HEAD: this page is read-only");
    Request request;
    if (!parse_target(text(message.target()), request)) return refuse(400, "no path");
    const size_t slash = request.path.find('/');
    if (!equal_in_constant_time(request.path.substr(0, slash), shared_.secret))
      return refuse(403, "the address lacks the secret; use the complete one that the program printed");
    if (slash == std::string::npos) return refuse(404, "the address ends in a slash");
    request.path.erase(0, slash + 1);
    // The worker may neither touch the connection nor be the last to let go of it, so the connection is passed back
    // with the result to the thread of the connections.
    asio::post(*shared_.workers, [self = shared_from_this(), request]() mutable {
      Reply reply;
      try {
        reply = self->shared_.handler(request);
      } catch (const std::exception& error) {
        reply = {500, "text/plain; charset=utf-8", std::string(error.what()) + "\n"};
      }
      const auto thread = self->stream_.get_executor();
      asio::post(thread,
                 [self = std::move(self), reply = std::move(reply)]() mutable { self->write(std::move(reply)); });
    });
  }

  void write(Reply reply) {
    const auto& message = parser_->get();
    response_ = {};
    response_.version(11);
    response_.result(static_cast<unsigned>(reply.status));
    response_.set(http::field::content_type, reply.type);
    response_.set(http::field::cache_control, "no-store");
    response_.set("Content-Security-Policy",
                  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
                  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'");
    response_.set("X-Content-Type-Options", "nosniff");
    response_.set("Referrer-Policy", "no-referrer");  // the secret is in the address
    response_.set("Cross-Origin-Resource-Policy", "same-origin");
    response_.keep_alive(reply.status < 400 && message.keep_alive());
    const size_t num_bytes = reply.body.size();
    if (message.method() != http::verb::head) response_.body() = std::move(reply.body);
    response_.content_length(num_bytes);
    limit_time();
    // A HEAD has the length of what a GET would get, and no body: only the header is sent.
    if (message.method() == http::verb::head) {
      serializer_.emplace(response_);
      http::async_write_header(stream_, *serializer_,
                               [self = shared_from_this()](beast::error_code error, size_t) { self->go_on(error); });
      return;
    }
    http::async_write(stream_, response_,
                      [self = shared_from_this()](beast::error_code error, size_t) { self->go_on(error); });
  }

  void go_on(beast::error_code error) {
    serializer_.reset();
    if (error) return;
    if (response_.keep_alive()) return read();
    stream_.socket().shutdown(Tcp::socket::shutdown_send, error);
  }

  beast::tcp_stream stream_;
  Shared& shared_;
  beast::flat_buffer buffer_{kMostHeaderBytes};
  std::optional<http::request_parser<http::empty_body>> parser_;
  http::response<http::string_body> response_;
  std::optional<http::response_serializer<http::string_body>> serializer_;
};

// Threads that are started meanwhile take no signals: these are the business of the program's own threads.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

class Server::Impl {
 public:
  Impl(const ServerOptions& options, Handler handler)
      : listener_(context_, options.host, options.port, [this](Tcp::socket socket) { take(std::move(socket)); }) {
    shared_.options = options;
    shared_.handler = std::move(handler);
    shared_.workers = &workers_;
    shared_.names = {host_name(), options.host};
    thread_ = std::thread([this] { context_.run(); });
  }
  ~Impl() {
    context_.stop();
    thread_.join();
    workers_.stop();
    workers_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  int port() const { return listener_.port(); }
  const std::string& secret() const { return shared_.secret; }

 private:
  void take(Tcp::socket socket) {
    if (shared_.num_connections < shared_.options.most_connections)
      std::make_shared<Connection>(std::move(socket), shared_)->read();
  }

  // In this order: what the context and the workers still hold are connections, which count themselves in `shared_`.
  Shared shared_;
  asio::io_context context_{1};
  asio::thread_pool workers_{1};
  Listener listener_;
  std::thread thread_;
};

Server::Server(const ServerOptions& options, Handler handler)
    : impl_([&] {
        const SignalsHeld held;
        return std::make_shared<Impl>(options, std::move(handler));
      }()) {
  const std::string host = options.host == "0.0.0.0" || options.host == "::" ? host_name()
                           : options.host.find(':') != std::string::npos     ? "[" + options.host + "]"
                                                                             : options.host;
  url_ = concat("http://", host, ":", impl_->port(), "/", impl_->secret(), "/");
}

Server::~Server() = default;

int Server::port() const { return impl_->port(); }

}  // namespace espalier::web
