#include "web/server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"

namespace espalier::web {
namespace {

// A plain socket, so that requests can be wrong in ways that no client library sends.
class Client {
 public:
  explicit Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& text) {
    EXPECT_EQ(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // Everything until the other side closes.
  std::string rest() {
    std::string all;
    char piece[4096];
    for (ssize_t got = 0; (got = ::recv(socket_, piece, sizeof piece, 0)) > 0;)
      all.append(piece, static_cast<size_t>(got));
    return all;
  }

 private:
  int socket_;
};

class WebServer : public testing::Test {
 protected:
  std::string path(const std::string& below) const {
    const size_t slash = server_.url().find('/', std::string("http://").size());
    return server_.url().substr(slash) + below;
  }
  std::string ask(const std::string& line, const std::string& host = "127.0.0.1", const std::string& more = "") {
    Client client(server_.port());
    client.send(line + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n" + more + "\r\n");
    return client.rest();
  }
  static int status(const std::string& reply) { return reply.size() > 12 ? std::stoi(reply.substr(9, 3)) : 0; }

  Server server_{{.timeout_seconds = 1}, [](const Request& request) -> Reply {
                   if (request.path == "throws") throw UserError("the disk is away");
                   const auto found = request.query.find("x");
                   return {200, "text/plain", request.path + "|" + (found == request.query.end() ? "" : found->second)};
                 }};
};

TEST_F(WebServer, AnswersBelowTheSecretOnly) {
  const std::string good = ask("GET " + path("a%20b/c?x=1%26&y"));
  EXPECT_EQ(status(good), 200) << good;
  EXPECT_TRUE(good.ends_with("\r\n\r\na b/c|1&")) << good;
  EXPECT_NE(good.find("default-src 'none'"), std::string::npos) << good;
  EXPECT_EQ(status(ask("GET /")), 403);
  EXPECT_EQ(status(ask("GET /api/runs")), 403);
  std::string wrong = path("");
  wrong[5] = wrong[5] == '0' ? '1' : '0';
  EXPECT_EQ(status(ask("GET " + wrong)), 403);
  EXPECT_EQ(status(ask("GET " + path("").substr(0, 12))), 403);
}

TEST_F(WebServer, RefusesNamesThatAForeignNameServerCouldPointHere) {
  EXPECT_EQ(status(ask("GET " + path(""), "evil.example")), 403);
  EXPECT_EQ(status(ask("GET " + path(""), "127.0.0.1.evil.example:80")), 403);
  EXPECT_EQ(status(ask("GET " + path(""), "LocalHost:80")), 200);
  EXPECT_EQ(status(ask("GET " + path(""), "[::1]:80")), 200);
  EXPECT_EQ(status(ask("GET " + path(""), "a\r\nHost: localhost")), 403);
}

TEST_F(WebServer, OnlyReads) {
  EXPECT_EQ(status(ask("POST " + path(""))), 405);
  EXPECT_EQ(status(ask("DELETE " + path(""))), 405);
  const std::string head = ask("HEAD " + path("abc"));
  EXPECT_EQ(status(head), 200);
  EXPECT_NE(head.find("Content-Length: 4\r\n"), std::string::npos) << head;
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
}

TEST_F(WebServer, RefusesWhatIsTooLargeOrMadeWrongly) {
  EXPECT_EQ(status(ask("POST " + path(""), "localhost", "Content-Length: 10\r\n")), 413);
  EXPECT_EQ(status(ask("GET " + path("%zz"))), 400);
  EXPECT_EQ(status(ask("GET " + path("%4"))), 400);
  Client client(server_.port());
  client.send("GET /" + std::string(20000, 'a') + " HTTP/1.1\r\n\r\n");
  EXPECT_NE(status(client.rest()), 200);
}

TEST_F(WebServer, AnErrorOfTheHandlerIsTold) {
  const std::string reply = ask("GET " + path("throws"));
  EXPECT_EQ(status(reply), 500);
  EXPECT_TRUE(reply.ends_with("the disk is away\n")) << reply;
}

TEST_F(WebServer, ClosesWhoIsSilentAndServesOthersMeanwhile) {
  Client silent(server_.port());
  silent.send("GET /");
  EXPECT_EQ(status(ask("GET " + path(""))), 200);
  EXPECT_EQ(silent.rest(), "");  // returns when the server closes, after its second
}

TEST(WebServerAlone, ClosesWhatIsBeyondTheLimit) {
  Server server({.most_connections = 1}, [](const Request&) { return Reply{}; });
  Client first(server.port());
  first.send("GET");
  for (int attempt = 0; attempt < 3; ++attempt) EXPECT_EQ(Client(server.port()).rest(), "");
}

TEST(WebServerAlone, SaysWhereItCannotListen) {
  const Server server({}, [](const Request&) { return Reply{}; });
  try {
    const Server second({.port = server.port()}, [](const Request&) { return Reply{}; });
    FAIL() << "two servers at one port";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("cannot listen on 127.0.0.1:"), std::string::npos) << error.what();
    EXPECT_EQ(error.code(), ExitCode::kCannotCreate);
  }
  EXPECT_THROW(Server({.host = "no address"}, [](const Request&) { return Reply{}; }), UserError);
}

TEST(WebServerAlone, SecretsDiffer) {
  const Server one({}, [](const Request&) { return Reply{}; }), other({}, [](const Request&) { return Reply{}; });
  EXPECT_NE(one.url().substr(one.url().size() - 33), other.url().substr(other.url().size() - 33));
}

}  // namespace
}  // namespace espalier::web
