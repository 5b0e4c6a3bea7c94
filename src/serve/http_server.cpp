#include "serve/http_server.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <thread>

#include "serve/internal/connection.h"
#include "web/listener.h"

namespace espalier::serve {

class HttpServer::Impl {
 public:
  Impl(const HttpOptions& options, HttpHandler handler, HttpRefusal refusal)
      : listener_(context_->io, options.host, options.port, [this](auto socket) { take(std::move(socket)); }) {
    context_->options = options;
    context_->handler = std::move(handler);
    context_->refusal = std::move(refusal);
    thread_ = std::thread([this] { context_->io.run(); });
  }
  ~Impl() {
    boost::asio::post(context_->io, [this] {
      listener_.close();
      for (const auto& connection : open_ones()) connection->close();
      work_.reset();  // what is pending is completed
    });
    thread_.join();
    context_->is_over = true;
    context_->handler = nullptr;
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  int port() const { return listener_.port(); }
  int64_t num_connections() const { return context_->num_open; }

  void drain() {
    boost::asio::post(context_->io, [this] {
      context_->draining = true;
      listener_.close();
      for (const auto& connection : open_ones()) connection->drain();
    });
  }

 private:
  void take(web::Listener::Socket socket) {
    if (context_->num_open < context_->options.most_connections)
      std::make_shared<Connection>(std::move(socket), context_)->start();
  }

  // To close one may end another.
  std::vector<std::shared_ptr<Connection>> open_ones() const {
    std::vector<std::shared_ptr<Connection>> connections;
    for (Connection* connection : context_->open)
      if (auto held = connection->weak_from_this().lock()) connections.push_back(std::move(held));
    return connections;
  }

  std::shared_ptr<ConnectionsContext> context_ = std::make_shared<ConnectionsContext>();
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{context_->io.get_executor()};
  web::Listener listener_;
  std::thread thread_;
};

HttpServer::HttpServer(const HttpOptions& options, HttpHandler handler, HttpRefusal refusal)
    : impl_(std::make_unique<Impl>(options, std::move(handler), std::move(refusal))) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->port(); }
int64_t HttpServer::num_connections() const { return impl_->num_connections(); }
void HttpServer::drain() { impl_->drain(); }

}  // namespace espalier::serve
