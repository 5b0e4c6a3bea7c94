// Listens at an address and hands out the connections that come, for the servers of this program.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <string>

namespace espalier::web {

class Listener {
 public:
  using Socket = boost::asio::ip::tcp::socket;

  // Listens, or throws a UserError that names the address; `take` gets every connection, in the thread of `context`.
  Listener(boost::asio::io_context& context, const std::string& host, int port, std::function<void(Socket)> take);

  int port() const { return port_; }  // the one that was found where 0 was asked for
  // In the thread of the context: those that come from now on are refused by the system.
  void close();

 private:
  void accept();

  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  std::function<void(Socket)> take_;
  int port_ = 0;
};

}  // namespace espalier::web
