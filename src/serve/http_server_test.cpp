#include "serve/http_server.h"

#include <mutex>
#include <thread>

#include "serve/toy_service_test.h"

namespace espalier::serve {
namespace {

class Http : public testing::Test {
 protected:
  // Keeps what is asked at /wait.
  void take(const HttpRequest& request, std::shared_ptr<Answer> answer) {
    const std::lock_guard lock(mutex_);
    if (request.path == "/wait") {
      answer->on_gone([this] { ++num_gone_; });
      waiting_.push_back(std::move(answer));
    } else if (request.path != "/drop") {
      answer->reply({.type = "text/plain", .body = request.method + request.path + "|" + request.body});
    }
  }
  std::shared_ptr<Answer> waiting() {
    for (int turn = 0; turn < 1000; ++turn) {
      {
        const std::lock_guard lock(mutex_);
        if (!waiting_.empty()) return waiting_.back();
      }
      ::usleep(10'000);
    }
    return nullptr;
  }
  PlainReply ask(const std::string& text) {
    PlainClient client(server_.port());
    client.send(text);
    return parsed_reply(client.receive());
  }
  bool is_gone() {
    for (int turn = 0; turn < 1000 && num_gone_ == 0; ++turn) ::usleep(10'000);
    return num_gone_ > 0;
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<Answer>> waiting_;
  std::atomic<int> num_gone_{0};
  HttpServer server_{
      {.most_body_bytes = 1000,
       .most_unsent_bytes = 1 << 20,
       .read_limit = std::chrono::milliseconds(300),
       .idle_limit = std::chrono::milliseconds(3000),
       .write_limit = std::chrono::milliseconds(3000)},
      [this](const HttpRequest& request, std::shared_ptr<Answer> answer) { take(request, std::move(answer)); },
      [](int status, const std::string& message) {
        return HttpReply{.status = status, .type = "text/plain", .body = message};
      }};
};

TEST_F(Http, AnswersRequestsOfOneConnectionInTheirOrder) {
  PlainClient client(server_.port());
  client.send("POST /a?x=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhiGET /b HTTP/1.1\r\nHost: h\r\n\r\nGE");
  client.send("T /c HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
  const std::string all = client.receive();
  const size_t a = all.find("POST/a|hi"), b = all.find("GET/b|"), c = all.find("GET/c|");
  EXPECT_TRUE(a < b && b < c && c < all.size()) << all;
}

TEST_F(Http, RefusesWhatIsNoRequestOrTooLong) {
  EXPECT_EQ(ask("\r\n\r\nwhat\r\n\r\n").status, 400);
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n").status, 400);
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nHost: a\r\nHost: b\r\nContent-Length: 0\r\n\r\n").status, 400);
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n").status, 413);
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nContent-Length: 1099511627776\r\n\r\n" + std::string(100'000, 'x')).status, 413);
  EXPECT_EQ(
      ask("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + std::string(1001, 'x') + "\r\n0\r\n\r\n")
          .status,
      413);
  EXPECT_EQ(ask("GET / HTTP/1.1\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n").status, 431);
  EXPECT_EQ(ask("POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhal").status, 408);
}

TEST_F(Http, TakesABodyThatWaitsForTheWord) {
  PlainClient client(server_.port());
  client.send("POST /x HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(client.receive("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ab");
  EXPECT_EQ(parsed_reply(client.receive()).body, "POST/x|ab");
}

TEST_F(Http, HeadHasTheLengthAndNoBody) {
  const PlainReply reply = ask("HEAD /x HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_NE(reply.head.find("Content-Length: 7"), std::string::npos) << reply.head;
  EXPECT_EQ(reply.body, "");
}

TEST_F(Http, AnAnswerThatIsDroppedIsAnError) {
  EXPECT_EQ(ask("GET /drop HTTP/1.1\r\nConnection: close\r\n\r\n").status, 500);
}

TEST_F(Http, TellsWhenTheClientLeaves) {
  PlainClient client(server_.port());
  client.send("GET /wait HTTP/1.1\r\n\r\n");
  ASSERT_NE(waiting(), nullptr);
  EXPECT_EQ(num_gone_, 0);
  client.close();
  EXPECT_TRUE(is_gone());
}

TEST_F(Http, SendsEventsAsTheyCome) {
  PlainClient client(server_.port());
  client.send("GET /wait HTTP/1.1\r\n\r\n");
  const std::shared_ptr<Answer> answer = waiting();
  answer->begin_events();
  answer->send_event("one");
  EXPECT_NE(client.receive("data: one\n\n\r\n").find("text/event-stream"), std::string::npos);
  answer->send_event("two");
  answer->end_events();
  answer->send_event("three");
  EXPECT_EQ(client.receive("0\r\n\r\n"), "b\r\ndata: two\n\n\r\n0\r\n\r\n");
  client.send("GET /more HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(parsed_reply(client.receive()).body, "GET/more|");
}

TEST_F(Http, DisconnectsAReaderThatDoesNotKeepUp) {
  PlainClient client(server_.port());
  client.send("GET /wait HTTP/1.1\r\n\r\n");
  const std::shared_ptr<Answer> answer = waiting();
  answer->begin_events();
  for (int event = 0; event < 1000 && num_gone_ == 0; ++event) answer->send_event(std::string(1 << 16, 'x'));
  EXPECT_TRUE(is_gone());
}

TEST_F(Http, DisconnectsAReaderThatTakesNothing) {
  PlainClient client(server_.port());
  client.send("GET /wait HTTP/1.1\r\n\r\n");
  waiting()->reply({.body = std::string(64 << 20, 'x')});
  for (int turn = 0; turn < 1000 && server_.num_connections() > 0; ++turn) ::usleep(10'000);
  EXPECT_EQ(server_.num_connections(), 0);
}

TEST_F(Http, DrainsToTheLastAnswer) {
  PlainClient idle(server_.port()), busy(server_.port());
  busy.send("GET /wait HTTP/1.1\r\n\r\n");
  const std::shared_ptr<Answer> answer = waiting();
  server_.drain();
  EXPECT_EQ(idle.receive(), "");
  answer->reply({.body = "done"});
  const PlainReply reply = parsed_reply(busy.receive());
  EXPECT_EQ(reply.body, "done");
  EXPECT_NE(reply.head.find("Connection: close"), std::string::npos) << reply.head;
}

TEST_F(Http, AnAnswerMayOutliveTheServer) {
  std::shared_ptr<Answer> kept;
  {
    HttpServer server(
        {}, [&](const HttpRequest&, std::shared_ptr<Answer> answer) { kept = std::move(answer); },
        [](int, const std::string&) { return HttpReply{}; });
    PlainClient client(server.port());
    client.send("GET / HTTP/1.1\r\n\r\n");
    while (server.num_connections() == 0) ::usleep(1000);
    ::usleep(50'000);
  }
  ASSERT_NE(kept, nullptr);
  kept->reply({});
}

}  // namespace
}  // namespace espalier::serve
