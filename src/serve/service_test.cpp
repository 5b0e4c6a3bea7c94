// Routes, access, limits and ends of the server.
#include "serve/service.h"

#include <fstream>

#include "serve/toy_service_test.h"

namespace espalier::serve {
namespace {

class ServiceRoutes : public ToyService {};

TEST_F(ServiceRoutes, TellsWhatItIs) {
  EXPECT_EQ(ask("GET /health").json(), nlohmann::json({{"status", "ok"}}));
  EXPECT_EQ(ask("GET /v1/models").json()["data"][0]["id"], "toy");
  EXPECT_EQ(ask("GET /v1/models/toy").json()["object"], "model");
  EXPECT_EQ(ask("GET /v1/models/other").status, 404);
  EXPECT_EQ(ask("GET /nothing").status, 404);
  EXPECT_EQ(ask("POST /v1/completion", "{}").message().find("there is nothing at /v1/completion; there are /v1/comple"),
            0u);
  EXPECT_EQ(ask("GET /v1/completions").status, 405);
  EXPECT_EQ(ask("GET /tokenizer_info").json()["eos_token"], "<end>");
  const std::string metrics = ask("GET /metrics").body;
  EXPECT_NE(metrics.find("espalier_http_replies_total{route=\"/health\",status=\"200\"} 1\n"), std::string::npos)
      << metrics;
  EXPECT_NE(metrics.find("\nespalier_cache_pages 64\n"), std::string::npos) << metrics;
}

// Two models with one address, told apart by the length of what they take.
class TwoModels : public ToyService {
 protected:
  TwoModels() : ToyService({.model_name = "toy", .max_texts = 64, .beside = "other"}) {
    start();
    thread_beside_.emplace(engine_beside_, [](const std::exception_ptr&) {});
  }
  PlainReply ask_both(const std::string& line, const std::string& body = "") const {
    PlainClient client(both_.port());
    client.send(request_text(line, body));
    return parsed_reply(client.receive());
  }

  infer::toy::ToyModel model_beside_{{.vocab_size = 257, .page_tokens = 4, .num_pages = 64, .max_positions = 50}};
  infer::Engine engine_beside_{model_beside_, &tokenizer_, {.scheduler = {.max_sequences = 16}}};
  Desk desk_beside_{engine_beside_, tokenizer_, {.model_name = "other", .max_texts = 64}};
  Service both_{desk_, {}, &desk_beside_};
  std::optional<EngineThread> thread_beside_;
};

TEST_F(TwoModels, TheSecondHasTheSameRoutesBelowBeside) {
  const nlohmann::json first = ask_both("GET /v1/models").json()["data"][0];
  EXPECT_EQ(first["id"], "toy");
  EXPECT_EQ(first["beside"], "other");
  const nlohmann::json second = ask_both("GET /beside/v1/models").json()["data"][0];
  EXPECT_EQ(second["id"], "other");
  EXPECT_EQ(second["max_model_len"], 51);
  EXPECT_FALSE(second.contains("beside"));
  const std::string body = R"({"model":"other","prompt":"a","max_tokens":60})";
  const PlainReply wrong = ask_both("POST /v1/completions", body);
  EXPECT_EQ(wrong.status, 404) << "the first is not called that";
  EXPECT_NE(wrong.message().find("only 'toy'; that one's routes are below /beside/"), std::string::npos) << wrong.body;
  EXPECT_EQ(ask_both("POST /beside/v1/completions", body).status, 400) << "60 tokens are more than the second takes";
  EXPECT_EQ(ask_both("POST /beside/v1/completions", R"({"model":"other","prompt":"a","max_tokens":3})").status, 200);
  EXPECT_EQ(ask_both("POST /v1/completions", R"({"model":"toy","prompt":"a","max_tokens":60})").status, 200);
  const std::string metrics = ask_both("GET /beside/metrics").body;
  EXPECT_NE(metrics.find("espalier_http_replies_total{route=\"/v1/completions\",status=\"200\"} 1\n"),
            std::string::npos)
      << metrics;
  EXPECT_EQ(ask_both("GET /beside/health").status, 200);
  EXPECT_EQ(ask_both("GET /beside/nothing").status, 404);
}

TEST_F(ServiceRoutes, WithoutASecondModelThereIsNothingBeside) {
  EXPECT_EQ(ask("GET /beside/v1/models").status, 404);
  EXPECT_FALSE(ask("GET /v1/models").json()["data"][0].contains("beside"));
}

TEST_F(ServiceRoutes, TokenizesThereAndBack) {
  const nlohmann::json ids = ask("POST /tokenize", R"({"prompt":"a<end>b","add_special_tokens":false})").json();
  EXPECT_EQ(ids["tokens"], nlohmann::json({'a', 256, 'b'}));
  EXPECT_EQ(ask("POST /detokenize", R"({"tokens":[97,256,98]})").json()["prompt"], "a<end>b");
  EXPECT_EQ(ask("POST /detokenize", R"({"tokens":[257]})").status, 400);
  EXPECT_EQ(ask("POST /detokenize", R"({"tokens":[-1]})").status, 400);
  EXPECT_EQ(ask("POST /tokenize", "{}").message(), "prompt is missing");
}

TEST_F(ServiceRoutes, ShowsThePlaygroundFromItsOwnFiles) {
  const PlainReply page = ask("GET /");
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.body.find("<script src=\"playground.js\">"), std::string::npos);
  EXPECT_EQ(page.body.find("http"), std::string::npos) << "no other host";
  EXPECT_NE(ask("GET /playground.js").body.find("v1/completions"), std::string::npos);
  EXPECT_EQ(ask("GET /playground.css").status, 200);
  EXPECT_EQ(ask("GET /playground.txt").status, 404);
}

TEST_F(ServiceRoutes, RefusesNamesThatForeignPagesCouldUse) {
  PlainClient client(service_.port());
  client.send("GET /v1/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(parsed_reply(client.receive()).status, 403);
}

TEST_F(ServiceRoutes, RefusesCompressedBodiesByName) {
  const auto status_of = [&](const std::string& encoding) {
    PlainClient client(service_.port());
    client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Encoding: " +
                encoding + "\r\nContent-Length: 2\r\n\r\n{}");
    const PlainReply reply = parsed_reply(client.receive());
    EXPECT_EQ(reply.body.find("Content-Encoding") != std::string::npos, reply.status == 415) << reply.body;
    return reply.status;
  };
  EXPECT_EQ(status_of("gzip"), 415);
  EXPECT_EQ(status_of("Identity"), 400);  // read, and lacks a prompt
}

TEST_F(ServiceRoutes, GivesThePlaceOfAClientThatLeavesFree) {
  PlainClient client(service_.port());
  client.send(request_text("POST /v1/completions", R"({"prompt":"a","max_tokens":90,"ignore_eos":true})"));
  ASSERT_TRUE(comes([&] { return engine_.counters().num_waiting == 1; }));
  engine_.step();
  EXPECT_EQ(engine_.counters().num_running, 1);
  client.close();
  ASSERT_TRUE(comes([&] { return engine_.wait(std::chrono::milliseconds(0)); }));
  // One step: the cancellation has arrived.
  ASSERT_TRUE(comes([&] {
    const std::string metrics = ask("GET /metrics").body;
    return metrics.find("espalier_clients_gone_total 1\n") != std::string::npos;
  }));
  ::usleep(50'000);
  engine_.step();
  EXPECT_EQ(engine_.counters().num_running, 0);
  EXPECT_EQ(engine_.counters().num_pages_held, 0);
  EXPECT_EQ(engine_.counters().num_cancelled, 1);
  EXPECT_TRUE(comes([&] { return desk_.num_texts() == 0; }));
}

TEST_F(ServiceRoutes, FinishesWhatIsUnderWayAndTakesNoMore) {
  PlainClient running(service_.port()), idle(service_.port());
  running.send(request_text("POST /v1/completions", R"({"prompt":"a","max_tokens":9,"ignore_eos":true})"));
  ASSERT_TRUE(comes([&] { return engine_.counters().num_waiting == 1; }));
  service_.drain();
  EXPECT_EQ(idle.receive(), "");
  EXPECT_FALSE(service_.is_idle());
  start();
  const PlainReply reply = parsed_reply(running.receive());
  EXPECT_EQ(reply.json()["usage"]["completion_tokens"], 9) << reply.body;
  running.close();
  EXPECT_TRUE(comes([&] { return service_.is_idle(); }));
}

TEST_F(ServiceRoutes, SaysThatTheModelHasFailed) {
  model_.throw_at = 0;
  start();
  PlainClient client(service_.port());
  client.send(request_text("POST /v1/completions", R"({"prompt":"a"})"));
  EXPECT_TRUE(comes([&] { return ask("GET /health").status == 500; }));
}

class LimitedService : public ToyService {
 protected:
  LimitedService()
      : ToyService({.model_name = "toy",
                    .max_texts = 2,
                    .max_prompt_tokens = 10,
                    .request_limit = std::chrono::milliseconds(300),
                    .api_key = "secret"}) {}
  const std::string key_ = "Authorization: Bearer secret\r\n";
};

TEST_F(LimitedService, WantsTheKeyButForHealth) {
  EXPECT_EQ(ask("GET /health").status, 200);
  for (const std::string wrong : {"", "Authorization: Bearer\r\n", "Authorization: Bearer secre\r\n",
                                  "Authorization: Basic secret\r\n", "Authorization: Bearer secret2\r\n"})
    for (const std::string path : {"GET /metrics", "GET /v1/models", "POST /v1/completions", "GET /nothing"}) {
      const PlainReply reply = ask(path, "", wrong);
      EXPECT_EQ(reply.status, 401) << path << " with " << wrong;
      EXPECT_NE(reply.head.find("WWW-Authenticate: Bearer"), std::string::npos);
    }
  EXPECT_EQ(ask("GET /v1/models", "", key_).status, 200);
}

TEST_F(LimitedService, SendsAwayWhoFindsNoPlace) {
  PlainClient first(service_.port()), second(service_.port());
  const std::string body = R"({"prompt":"a","max_tokens":3,"ignore_eos":true})";
  first.send(request_text("POST /v1/completions", body, key_));
  second.send(request_text("POST /v1/completions", body, key_));
  ASSERT_TRUE(comes([&] { return desk_.num_texts() == 2; }));
  const PlainReply third = ask("POST /v1/completions", body, key_);
  EXPECT_EQ(third.status, 429);
  EXPECT_NE(third.head.find("Retry-After: 1"), std::string::npos) << third.head;
  EXPECT_EQ(ask("POST /v1/completions", R"({"prompt":"a","n":3})", key_).status, 400);
  EXPECT_EQ(ask("POST /v1/completions", R"({"prompt":"more than ten bytes"})", key_).json()["error"]["code"],
            "context_length_exceeded");
  start();
  EXPECT_EQ(parsed_reply(first.receive()).status, 200);
  EXPECT_EQ(parsed_reply(second.receive()).status, 200);
  EXPECT_EQ(ask("POST /v1/completions", body, key_).status, 200);
}

TEST_F(LimitedService, CancelsWhatTakesTooLong) {
  PlainClient client(service_.port()), stream(service_.port());
  client.send(request_text("POST /v1/completions", R"({"prompt":"a","max_tokens":9})", key_));
  stream.send(request_text("POST /v1/completions", R"({"prompt":"a","max_tokens":9,"stream":true})", key_));
  ASSERT_TRUE(comes([&] { return desk_.num_texts() == 2; }));
  ::usleep(400'000);
  start();
  const PlainReply reply = parsed_reply(client.receive());
  EXPECT_EQ(reply.status, 504);
  EXPECT_NE(reply.head.find("x-should-retry: false"), std::string::npos);
  const auto events = events_of(parsed_reply(stream.receive()).body);
  ASSERT_FALSE(events.empty());
  EXPECT_TRUE(nlohmann::json::parse(events.back()).contains("error")) << events.back();
  EXPECT_TRUE(comes([&] { return desk_.num_texts() == 0; }));
}

}  // namespace
}  // namespace espalier::serve
