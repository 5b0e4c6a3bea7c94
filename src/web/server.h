// A small HTTP server for pages that one person or a few look at: read-only, behind a secret, in one thread.
//
//   web::Server server({.port = 0}, [](const web::Request& request) { return web::Reply{...}; });
//   log_info(server.url());   // http://127.0.0.1:40123/3f9c.../
//
// Connections are served by one thread that never waits for any of them, so that a thousand cost no thousand threads;
// a second thread calls the handler, one request at a time. What the handler throws becomes status 500 with its text.
//
// Nobody gets past the secret, which is the first part of the path and is compared in constant time. A request whose
// Host is a name that is not this server's is refused as well: that is how a foreign page would reach a local server
// through DNS. Only GET and HEAD are known.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::web {

struct Request {
  std::string path;  // decoded, after the secret: "api/runs"; "" is the page itself
  std::map<std::string, std::string> query;
};

struct Reply {
  int status = 200;
  std::string type = "application/json";
  std::string body;
};

using Handler = std::function<Reply(const Request&)>;

struct ServerOptions {
  std::string host = "127.0.0.1";  // the address to listen at
  int port = 0;                    // 0: any free one
  int most_connections = 1000;     // more are closed at once
  int timeout_seconds = 60;        // for a whole request, for a whole reply, and between two of them
};

class Server {
 public:
  // Listens, or throws a UserError that names the address.
  Server(const ServerOptions& options, Handler handler);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& url() const { return url_; }  // ends in the secret and a slash
  int port() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
  std::string url_;
};

// Whether a Host header names this machine in a way that no foreign name server can bring about: by an address,
// "localhost", or one of `names`.
bool is_own_host(const std::string& header, const std::vector<std::string>& names);

// "/a%20b?x=1&y=2" as path and query; false where the escapes are not escapes.
bool parse_target(std::string_view target, Request& request);

// Takes as long for any two texts of the same length.
bool equal_in_constant_time(std::string_view left, std::string_view right);

}  // namespace espalier::web
