// POST /retrieve and the field "retrieve" of completions, over passages of which each question finds those that share
// most of its words.
#include "serve/passages.h"

#include <algorithm>
#include <sstream>

#include "serve/toy_service_test.h"

namespace espalier::serve {
namespace passages_test {

using Json = nlohmann::json;

std::vector<FoundPassage> planted(const std::string& question, int64_t count) {
  if (question == "broken") throw std::runtime_error("a shard has changed");
  std::vector<FoundPassage> all = {{7, "Peru", "lima is the capital", 0},
                                   {3, "", "hamlet is by shakespeare", 0},
                                   {9, "Darwin", "the origin of species", 0}};
  for (FoundPassage& passage : all) {
    std::istringstream words(question);
    for (std::string word; words >> word;) passage.score += passage.text.find(word) != std::string::npos;
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  all.resize(static_cast<size_t>(std::min<int64_t>(count, 3)));
  return all;
}

class Passages : public ToyService {
 protected:
  Passages() : ToyService({.model_name = "toy", .max_texts = 64, .find_passages = planted, .max_passages = 3}) {}
};

TEST_F(Passages, ComeInTheOrderOfTheirScores) {
  const Json found = ask("POST /retrieve", R"({"query": "by shakespeare", "k": 2})").json();
  ASSERT_EQ(found["passages"].size(), 2u);
  EXPECT_EQ(found["passages"][0],
            Json({{"id", 3}, {"title", ""}, {"text", "hamlet is by shakespeare"}, {"score", 2.0}}));
  EXPECT_EQ(found["passages"][1]["score"], 0.0);
  EXPECT_EQ(ask("POST /retrieve", R"({"query": "origin of species"})").json()["passages"][0]["title"], "Darwin");
  EXPECT_EQ(ask("GET /v1/models").json()["data"][0]["max_passages"], 3);
  EXPECT_EQ(desk_.num_texts(), 0);
}

TEST_F(Passages, ComeWithTheAnswerAndGoBeforeThePrompt) {
  start();
  const std::string prompt = "the capital";
  const Json plain = complete({{"prompt", prompt}, {"max_tokens", 4}}).json();
  EXPECT_FALSE(plain.contains("passages"));
  const Json beside =
      complete({{"prompt", prompt}, {"max_tokens", 4}, {"temperature", 0}, {"retrieve", {{"k", 1}}}}).json();
  ASSERT_EQ(beside["passages"].size(), 1u) << beside;
  EXPECT_EQ(beside["passages"][0]["id"], 7);
  EXPECT_EQ(beside["usage"]["prompt_tokens"], 11);
  // Another question than the prompt; the text that the model reads is the passages and the prompt.
  const std::string read = "hamlet is by shakespeare\n\nthe capital";
  EXPECT_EQ(with_passages(planted("hamlet", 1), prompt), read);
  EXPECT_EQ(with_passages(planted("lima", 1), prompt), "Peru\nlima is the capital\n\nthe capital");
  const Json before = complete({{"prompt", prompt},
                                {"max_tokens", 4},
                                {"temperature", 0},
                                {"echo", true},
                                {"retrieve", {{"k", 1}, {"query", "hamlet"}, {"prepend", true}}}})
                          .json();
  const Json by_hand = complete({{"prompt", read}, {"max_tokens", 4}, {"temperature", 0}, {"echo", true}}).json();
  EXPECT_EQ(before["choices"], by_hand["choices"]);
  EXPECT_EQ(before["passages"][0]["id"], 3);
}

TEST_F(Passages, AreTheFirstEventOfAStream) {
  start();
  const auto events =
      events_of(complete({{"prompt", "lima"}, {"max_tokens", 3}, {"stream", true}, {"retrieve", {{"k", 2}}}}).body);
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(Json::parse(events[0])["passages"][0]["id"], 7);
  EXPECT_EQ(Json::parse(events[0])["choices"], Json::array());
  EXPECT_FALSE(Json::parse(events[1]).contains("passages"));
  EXPECT_EQ(events.back(), "[DONE]");
}

TEST_F(Passages, SayWhatIsWrong) {
  const auto expect = [&](const std::string& line, const std::string& body, int status, const std::string& message) {
    const PlainReply reply = ask(line, body);
    EXPECT_EQ(reply.status, status) << body;
    EXPECT_NE(reply.message().find(message), std::string::npos) << reply.body;
  };
  expect("POST /retrieve", "{}", 400, "query is missing or empty");
  expect("POST /retrieve", R"({"query": "a", "k": 4})", 400, "k is not an integer from 1 to 3");
  expect("POST /retrieve", R"({"query": "a", "count": 2})", 400, "count is not a known field");
  expect("GET /retrieve", "", 405, "takes POST");
  expect("POST /retrieve", R"({"query": "broken"})", 500, "the search failed; the log of the server says why");
  const std::string path = "POST /v1/completions";
  expect(path, R"({"prompt": "a", "retrieve": {"k": 0}})", 400, "retrieve: k is not an integer from 1 to 3");
  expect(path, R"({"prompt": "a", "retrieve": 3})", 400, "retrieve: the body is not a JSON object");
  expect(path, R"({"prompt": ["a", "b"], "retrieve": {}})", 400, "retrieve is for one prompt that is a text");
  expect(path, R"({"prompt": "broken", "retrieve": {}})", 500, "the search failed");
  // With its passages the prompt is longer than the toy model takes.
  const std::string most(90, 'a');
  expect(path, concat("{\"prompt\": \"", most, "\", \"max_tokens\": 2, \"retrieve\": {\"prepend\": true}}"), 400,
         "maximum context length is 101 tokens");
  EXPECT_EQ(desk_.num_texts(), 0);
}

class WithoutPassages : public ToyService {};

TEST_F(WithoutPassages, SaysHowToHaveThem) {
  EXPECT_EQ(ask("POST /retrieve", R"({"query": "a"})").status, 404);
  const PlainReply reply = complete({{"prompt", "a"}, {"retrieve", {{"k", 1}}}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.message().find("start it with --retrieval-index"), std::string::npos) << reply.body;
  EXPECT_FALSE(ask("GET /v1/models").json()["data"][0].contains("max_passages"));
}

// One search at a time: who waits takes a place, and gets a status where there is none.
class SlowPassages : public ToyService {
 protected:
  SlowPassages()
      : ToyService({.model_name = "toy",
                    .max_texts = 2,
                    .request_limit = std::chrono::milliseconds(300),
                    .find_passages = [this](const std::string&, int64_t) {
                      EXPECT_EQ(++running_, 1);
                      ::usleep(400'000);
                      --running_;
                      ++searched_;
                      return std::vector<FoundPassage>();
                    }}) {}
  std::atomic<int> running_{0}, searched_{0};
};

TEST_F(SlowPassages, AreSearchedOneAfterAnotherWithinTheLimits) {
  const std::string query = request_text("POST /retrieve", R"({"query": "a"})");
  PlainClient first(service_.port()), second(service_.port());
  first.send(query);
  ASSERT_TRUE(comes([&] { return running_ == 1; }));
  second.send(query);
  ASSERT_TRUE(comes([&] { return desk_.num_texts() == 2; }));
  EXPECT_EQ(ask("POST /retrieve", R"({"query": "a"})").status, 429);
  EXPECT_EQ(parsed_reply(first.receive()).status, 200);
  EXPECT_EQ(parsed_reply(second.receive()).status, 504);
  EXPECT_EQ(searched_, 1);
  PlainClient running(service_.port()), leaving(service_.port());
  running.send(query);
  ASSERT_TRUE(comes([&] { return running_ == 1; }));
  leaving.send(query);
  ASSERT_TRUE(comes([&] { return desk_.num_texts() == 2; }));
  leaving.close();
  EXPECT_EQ(parsed_reply(running.receive()).status, 200);
  EXPECT_TRUE(comes([&] { return desk_.num_texts() == 0; }));
  EXPECT_EQ(searched_, 2);
}

}  // namespace passages_test
}  // namespace espalier::serve
