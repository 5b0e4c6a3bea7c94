#include "web/listener.h"

#include <boost/system/error_code.hpp>
#include <chrono>

#include "base/error.h"

namespace espalier::web {
namespace net = boost::asio;

Listener::Listener(net::io_context& context, const std::string& host, int port, std::function<void(Socket)> take)
    : acceptor_(context), pause_(context), take_(std::move(take)) {
  boost::system::error_code error;
  const auto address = net::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error)
    throw UserError(
        concat("'", host, "' is not an address to listen on; use 127.0.0.1, 0.0.0.0 or one of this machine"),
        ExitCode::kUsage);
  const net::ip::tcp::endpoint endpoint(address, static_cast<unsigned short>(port));
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(net::socket_base::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(net::socket_base::max_listen_connections, error);
  if (error)
    throw UserError(concat("cannot listen on ", host, ":", port, ": ",
                           error == net::error::address_in_use ? "another program does; --port 0 uses any free port"
                           : error == boost::system::errc::address_not_available
                               ? "this machine does not have that address; use 127.0.0.1, 0.0.0.0 or one of its own"
                               : error.message()),
                    ExitCode::kCannotCreate);
  port_ = acceptor_.local_endpoint().port();
  accept();
}

void Listener::accept() {
  acceptor_.async_accept([this](boost::system::error_code error, Socket socket) {
    if (error == net::error::operation_aborted || !acceptor_.is_open()) return;
    if (!error) {
      take_(std::move(socket));
      return accept();
    }
    // Out of descriptors: to ask again at once would only burn the core.
    pause_.expires_after(std::chrono::milliseconds(100));
    pause_.async_wait([this](boost::system::error_code stopped) {
      if (!stopped) accept();
    });
  });
}

void Listener::close() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
}

}  // namespace espalier::web
