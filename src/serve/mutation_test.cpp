// Requests as nobody would send them, by a fixed seed: whatever comes, the server continues, and holds nothing
// afterwards.
#include <random>

#include "serve/toy_service_test.h"

namespace espalier::serve {
namespace {

class Mutated : public ToyService {
 protected:
  Mutated()
      : ToyService({.model_name = "toy", .max_texts = 64}, {.most_body_bytes = 1 << 16,
                                                            .read_limit = std::chrono::milliseconds(50),
                                                            .idle_limit = std::chrono::milliseconds(50)}) {}

  std::string request() {
    static const std::vector<std::pair<std::string, std::string>> kGood = {
        {"POST /v1/completions",
         R"({"model":"toy","prompt":[[97,98],[99]],"max_tokens":3,"logprobs":2,"echo":true,"stop":["x"],"n":2})"},
        {"POST /v1/completions", R"({"prompt":"\u20ac a","stream":true,"max_tokens":5,"logit_bias":{"97":-3.5}})"},
        {"POST /v1/chat/completions", R"({"messages":[{"role":"user","content":"x"}]})"},
        {"PUT /api", R"({"prompts":["a","b"],"tokens_to_generate":4,"top_p":0.9,"logprobs":true})"},
        {"PUT /api", R"({"prompts":["a"],"tokens_to_generate":4,"beam_width":3})"},
        {"POST /tokenize", R"({"prompt":"abc<end>"})"},
        {"POST /detokenize", R"({"tokens":[1,2,256]})"},
        {"GET /metrics", ""},
    };
    const auto& [line, body] = kGood[random_() % kGood.size()];
    return request_text(line, mutated(body, /*keeps_length=*/random_() % 2 == 0),
                        random_() % 4 == 0 ? "Transfer-Encoding: chunked\r\n" : "");
  }

  std::string mutated(std::string text, bool keeps_length) {
    static const std::vector<std::string> kParts = {"null",
                                                    "-1",
                                                    "1e999",
                                                    "\"",
                                                    "[",
                                                    "]",
                                                    "{",
                                                    "}",
                                                    "\\u00",
                                                    "99999999999999999999",
                                                    "\xff",
                                                    "true",
                                                    "\r\n",
                                                    ":",
                                                    std::string(1, '\0'),
                                                    "\xed\xa0\x80",
                                                    "0"};
    for (size_t change = random_() % 4; change > 0 && !text.empty(); --change) {
      const size_t at = random_() % text.size();
      if (keeps_length)
        text[at] = static_cast<char>(random_());
      else if (random_() % 2 == 0)
        text.erase(at, random_() % 9);
      else
        text.insert(at, kParts[random_() % kParts.size()]);
    }
    return text;
  }

  std::mt19937 random_{20260711};
};

TEST_F(Mutated, RequestsLeaveTheServerAsItWas) {
  start();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(8);
  int num_good = 0, num_refused = 0;
  for (int round = 0; round < 3000 && std::chrono::steady_clock::now() < end; ++round) {
    PlainClient client(service_.port());
    std::string text = request();
    if (random_() % 3 == 0) text = mutated(std::move(text), random_() % 2 == 0);
    if (random_() % 8 == 0) text.resize(random_() % text.size());
    client.send(text);
    if (random_() % 4 == 0) continue;  // leaves at once
    const PlainReply reply = parsed_reply(client.receive());
    EXPECT_NE(reply.status, 500) << text << "\n" << reply.body;
    ++(reply.status == 200 ? num_good : num_refused);
  }
  EXPECT_GT(num_good, 20);
  EXPECT_GT(num_refused, 20);
  EXPECT_EQ(ask("GET /health").status, 200);
  EXPECT_TRUE(comes([&] { return service_.is_idle() && engine_.counters().num_running == 0; }));
  EXPECT_EQ(engine_.counters().num_pages_held, 0);
}

}  // namespace
}  // namespace espalier::serve
