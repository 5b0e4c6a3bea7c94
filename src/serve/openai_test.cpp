// Completions and chats: what clients get is what the engine gives, in the form that they read.
#include "infer/engine/completion.h"
#include "serve/toy_service_test.h"

namespace espalier::serve {
namespace {

using Json = nlohmann::json;

std::string read_roles(const nlohmann::ordered_json& messages, bool add_generation_prompt) {
  std::string text;
  for (const auto& message : messages)
    text += concat("[", message["role"].get<std::string>(), "]", message["content"].get<std::string>());
  return text + (add_generation_prompt ? "[assistant]" : "");
}

class OpenAi : public ToyService {
 protected:
  OpenAi() : ToyService({.model_name = "toy", .max_texts = 64, .render_chat = read_roles}) {}

  // The same by an engine without a server.
  infer::Completion wanted(const std::string& prompt, int64_t max_tokens, int64_t num_alternatives, bool echo) {
    infer::Request request;
    request.prompt_ids = tokenizer_.encode(prompt);
    request.max_tokens = max_tokens;
    request.num_alternatives = num_alternatives;
    request.sampling.temperature = 0;
    if (echo) request.score_from = 1;
    infer::toy::ToyModel model({.vocab_size = 257, .page_tokens = 8, .num_pages = 64, .max_positions = 100});
    infer::Engine engine(model, &tokenizer_, {});
    return infer::complete(engine, {request}).front();
  }
  Json choice(const Json& body) {
    const PlainReply reply = complete(body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json()["choices"][0];
  }
  std::vector<Json> stream(const std::string& line, Json body) {
    body["stream"] = true;
    const PlainReply reply = ask(line, body.dump());
    std::vector<std::string> events = events_of(reply.body);
    EXPECT_FALSE(events.empty()) << reply.body;
    if (events.empty()) return {};
    EXPECT_EQ(events.back(), "[DONE]");
    events.pop_back();
    std::vector<Json> parsed;
    for (const std::string& event : events) parsed.push_back(Json::parse(event));
    return parsed;
  }
};

TEST_F(OpenAi, EchoedLogprobsAreTheEnginesToTheBit) {
  start();
  const infer::Completion direct = wanted("The\xE2\x82\xAC cat", 1, 1, true);
  const Json made = choice({{"prompt", "The\xE2\x82\xAC cat"},
                            {"max_tokens", 1},
                            {"temperature", 0},
                            {"echo", true},
                            {"logprobs", 1},
                            {"seed", 1234}});
  const Json& logprobs = made["logprobs"];
  ASSERT_EQ(logprobs["token_logprobs"].size(), 11u);
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  for (size_t at = 0; at < 9; ++at) {
    const infer::TokenScore& score = direct.prompt_scores[at];
    EXPECT_EQ(logprobs["token_logprobs"][at + 1], score.log_probability) << at;
    double most = -1e9;
    for (const auto& [name, value] : logprobs["top_logprobs"][at + 1].items())
      most = std::max(most, value.get<double>());
    EXPECT_EQ(most, score.alternatives[0].log_probability) << at;
  }
  EXPECT_EQ(logprobs["token_logprobs"][10], direct.choices[0].tokens[0].log_probability);
  // The three bytes of the euro sign are one character.
  EXPECT_EQ(logprobs["text_offset"], Json({0, 1, 2, 3, 3, 3, 4, 5, 6, 7, 8}));
  EXPECT_TRUE(made["text"].get<std::string>().starts_with("The\xE2\x82\xAC cat"));
}

TEST_F(OpenAi, ScoresAreEqualAloneInCrowdsAndFromTheCache) {
  start();
  const Json body = {
      {"prompt", "a text with a beginning"}, {"max_tokens", 1}, {"temperature", 0}, {"echo", true}, {"logprobs", 2}};
  const Json alone = choice(body)["logprobs"];
  EXPECT_EQ(choice(body)["logprobs"], alone);
  Json crowd = body;
  crowd["prompt"] = Json::array();
  for (int row = 0; row < 16; ++row) crowd["prompt"].push_back("a text with a beginning");
  const Json several = complete(crowd).json()["choices"];
  ASSERT_EQ(several.size(), 16u);
  for (const Json& one : several) EXPECT_EQ(one["logprobs"], alone);
}

TEST_F(OpenAi, PromptsMayBeTextsOrIds) {
  start();
  const Json text = choice({{"prompt", "ab"}, {"max_tokens", 4}, {"temperature", 0}});
  for (const Json& prompt : {Json({97, 98}), Json::array({Json({97, 98})}), Json::array({"ab"})})
    EXPECT_EQ(choice({{"prompt", prompt}, {"max_tokens", 4}, {"temperature", 0}}), text) << prompt;
  const Json both = complete({{"prompt", {"x", "ab"}}, {"max_tokens", 4}, {"n", 2}, {"seed", 5}}).json();
  ASSERT_EQ(both["choices"].size(), 4u);
  for (size_t index = 0; index < 4; ++index) EXPECT_EQ(both["choices"][index]["index"], index);
  EXPECT_EQ(both["usage"]["prompt_tokens"], 3);
  EXPECT_EQ(complete({{"prompt", {"x", "ab"}}, {"max_tokens", 4}, {"n", 2}, {"seed", 5}}).json()["choices"],
            both["choices"]);
  EXPECT_EQ(choice({{"prompt", ""}, {"max_tokens", 2}, {"temperature", 0}}),
            choice({{"prompt", Json({256})}, {"max_tokens", 2}, {"temperature", 0}}));
}

TEST_F(OpenAi, TextThatIsNotMadeIsOnlyEchoed) {
  start();
  const Json body = {{"prompt", "ab"}, {"max_tokens", 0}, {"echo", true}};
  EXPECT_EQ(choice(body)["text"], "ab");
  Json scored = body;
  scored["logprobs"] = 1;
  EXPECT_EQ(choice(scored)["logprobs"]["token_logprobs"].size(), 2u);
  scored["prompt"] = "a";
  EXPECT_EQ(choice(scored)["logprobs"]["token_logprobs"], Json::array({nullptr}));
  EXPECT_EQ(choice({{"prompt", "ab"}, {"max_tokens", 0}})["text"], "");
}

TEST_F(OpenAi, AStreamIsTheWholeInParts) {
  start();
  const Json body = {{"prompt", {"ab", "c"}}, {"max_tokens", 9},    {"n", 2}, {"seed", 11}, {"logprobs", 2},
                     {"echo", true},          {"stop", {"zz", "q"}}};
  const Json whole = complete(body).json();
  Json streamed = body;
  streamed["stream_options"] = {{"include_usage", true}};
  std::vector<std::string> texts(4), reasons(4);
  std::vector<Json> logprobs(4);
  const std::vector<Json> chunks = stream("POST /v1/completions", streamed);
  for (const Json& chunk : chunks)
    for (const Json& part : chunk["choices"]) {
      const size_t index = part["index"];
      texts[index] += part["text"].get<std::string>();
      for (const auto& [key, list] : part["logprobs"].items())
        for (const Json& element : list) logprobs[index][key].push_back(element);
      if (!part["finish_reason"].is_null()) reasons[index] = part["finish_reason"];
    }
  EXPECT_EQ(chunks.back()["usage"], whole["usage"]);
  EXPECT_EQ(chunks.back()["choices"], Json::array());
  for (size_t index = 0; index < 4; ++index) {
    EXPECT_EQ(texts[index], whole["choices"][index]["text"]);
    EXPECT_EQ(logprobs[index], whole["choices"][index]["logprobs"]);
    EXPECT_EQ(reasons[index], whole["choices"][index]["finish_reason"]);
  }
}

TEST_F(OpenAi, RefusesByTheNameOfTheField) {
  start();
  const auto param = [&](Json more) {
    if (!more.contains("prompt")) more["prompt"] = "a";
    const PlainReply reply = complete(more);
    EXPECT_TRUE(reply.status == 400 || reply.status == 404) << more << reply.body;
    const Json param = reply.json()["error"]["param"];
    return param.is_string() ? param.get<std::string>() : reply.message();
  };
  EXPECT_EQ(param({{"model", "gpt-4"}}), "model");
  for (const char* name : {"suffix", "response_format", "guided_json", "tools", "temprature"})
    EXPECT_EQ(param({{name, {{"type", "x"}}}}), name);
  for (const char* name : {"temperature", "top_p", "n", "max_tokens", "logprobs", "frequency_penalty", "seed", "echo",
                           "stream", "stop", "logit_bias", "best_of", "min_tokens", "top_k", "stop_token_ids"}) {
    EXPECT_EQ(param({{name, Json::array({Json::array({1})})}}), name);
    EXPECT_EQ(param({{name, -1e300}}), name);
  }
  EXPECT_EQ(param({{"top_p", 0}}), "top_p");
  EXPECT_EQ(param({{"stop", ""}}), "stop");
  EXPECT_EQ(param({{"logit_bias", {{"x", 1}}}}), "logit_bias");
  EXPECT_EQ(param({{"stream_options", Json::object()}}), "stream_options");
  for (const Json& prompt : {Json(3), Json::array(), Json({1, "a"}), Json({-1}), Json({1.5}), Json({257}),
                             Json::array({Json::array()}), Json::array({nullptr}), Json({1ull << 40})})
    EXPECT_EQ(param({{"prompt", prompt}}), "prompt") << prompt;
  EXPECT_EQ(complete({{"prompt", "a"}, {"max_tokens", 1 << 20}}).json()["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(complete({{"prompt", "a"}, {"n", 0}, {"top_p", 2}}).message(),
            "top_p is not a number from 0 to 1; n is not an integer from 1 to 128");
  EXPECT_EQ(ask("POST /v1/completions", "{\"prompt\": ").status, 400);
  EXPECT_EQ(ask("POST /v1/completions", "[]").message(), "the body is not a JSON object");
  EXPECT_EQ(ask("POST /v1/completions", std::string(100'000, '[')).status, 400);
  // What changes nothing is taken.
  EXPECT_EQ(complete({{"prompt", "a"}, {"user", "me"}, {"metadata", {{"a", "b"}}}, {"suffix", nullptr}}).status, 200);
}

TEST_F(OpenAi, ChatsAreTextsOfTheTemplate) {
  start();
  const Json messages = {{{"role", "system"}, {"content", "s"}},
                         {{"role", "user"}, {"content", Json::array({{{"type", "text"}, {"text", "hi"}}})}}};
  const Json body = {{"messages", messages},
                     {"max_completion_tokens", 6},
                     {"temperature", 0},
                     {"logprobs", true},
                     {"top_logprobs", 2}};
  const infer::Completion direct = wanted("[system]s[user]hi[assistant]", 6, 2, false);
  const PlainReply reply = ask("POST /v1/chat/completions", body.dump());
  const Json made = reply.json()["choices"][0];
  EXPECT_EQ(made["message"]["content"], direct.choices[0].text) << reply.body;
  EXPECT_EQ(made["message"]["role"], "assistant");
  const Json& content = made["logprobs"]["content"];
  ASSERT_EQ(content.size(), direct.choices[0].tokens.size());
  for (size_t at = 0; at < content.size(); ++at) {
    EXPECT_EQ(content[at]["logprob"], direct.choices[0].tokens[at].log_probability);
    EXPECT_EQ(content[at]["top_logprobs"].size(), 2u);
  }
  std::string text;
  const std::vector<Json> chunks = stream("POST /v1/chat/completions", body);
  EXPECT_EQ(chunks.front()["choices"][0]["delta"], Json({{"role", "assistant"}, {"content", ""}}));
  for (const Json& chunk : chunks) text += chunk["choices"][0]["delta"].value("content", "");
  EXPECT_EQ(text, direct.choices[0].text);
  EXPECT_FALSE(chunks.back()["choices"][0]["finish_reason"].is_null());
  for (const Json& more :
       {Json({{"tools", {{{"type", "function"}}}}}), Json({{"response_format", {{"type", "text"}}}}),
        Json({{"messages", Json::array()}}), Json({{"messages", {{{"content", "no role"}}}}}),
        Json({{"top_logprobs", 2}, {"logprobs", false}}), Json({{"max_tokens", 2}, {"max_completion_tokens", 3}})}) {
    Json wrong = body;
    wrong.update(more);
    const int status = ask("POST /v1/chat/completions", wrong.dump()).status;
    EXPECT_EQ(status, more.contains("response_format") ? 200 : 400) << more;
  }
}

// A model whose encoder reads the prompt: its text begins with the token 7 and ends with 8.
class OpenAiWithEncoder : public ToyService {
 protected:
  OpenAiWithEncoder() : ToyService({.model_name = "toy", .max_texts = 64, .text_ends = TextEnds{7, 8}}) {}
  void expect_refused(const PlainReply& reply, const char* part) {
    EXPECT_EQ(reply.status, 400);
    EXPECT_NE(reply.body.find(part), std::string::npos) << part << "\n" << reply.body;
  }
};

TEST_F(OpenAiWithEncoder, AnswersAreTheEnginesToWhatItsEncoderReads) {
  start();
  infer::Request request;
  request.encoder_ids = tokenizer_.encode("a cat");
  request.prompt_ids = {7};
  request.max_tokens = 6;
  request.stop_ids = {8};
  request.num_alternatives = 2;
  request.sampling.temperature = 0;
  infer::toy::ToyModel model(
      {.vocab_size = 257, .page_tokens = 8, .num_pages = 64, .max_positions = 100, .has_encoder = true});
  infer::Engine engine(model, &tokenizer_, {});
  const infer::Completion direct = infer::complete(engine, {request}).front();
  const Json body = {{"prompt", "a cat"}, {"max_tokens", 6}, {"temperature", 0}, {"logprobs", 2}};
  const PlainReply reply = complete(body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json choice = reply.json()["choices"][0];
  EXPECT_EQ(choice["text"], direct.choices[0].text);
  ASSERT_EQ(choice["logprobs"]["token_logprobs"].size(), direct.choices[0].tokens.size());
  for (size_t i = 0; i < direct.choices[0].tokens.size(); ++i)
    EXPECT_EQ(choice["logprobs"]["token_logprobs"][i], direct.choices[0].tokens[i].log_probability) << i;
  EXPECT_EQ(reply.json()["usage"]["prompt_tokens"], 5);
  EXPECT_EQ(ask("GET /v1/models").json()["data"][0]["has_encoder"], true);
  // The same by its ids.
  Json by_ids = body;
  by_ids["prompt"] = request.encoder_ids;
  EXPECT_EQ(complete(by_ids).json()["choices"][0], choice);
}

TEST_F(OpenAiWithEncoder, WhatContinuesAPromptIsRefused) {
  start();
  expect_refused(complete({{"prompt", "a"}, {"echo", true}}), "echo is not supported: the model's encoder reads");
  expect_refused(complete({{"prompt", ""}}), "prompt is empty: the model's encoder reads at least one token");
  expect_refused(complete({{"prompt", std::string(51, 'a')}}),
                 "this model's encoder reads at most 50 tokens, and the prompt has 51");
  expect_refused(complete({{"prompt", "a"}, {"max_tokens", 101}}),
                 "this model's answers have at most 100 tokens, and max_tokens is 101");
  expect_refused(megatron({{"prompts", {"a"}}}), "this model's encoder reads them: use /v1/completions");
  expect_refused(ask("POST /v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}]})"),
                 "has no chat template");
  EXPECT_EQ(complete({{"prompt", std::string(50, 'a')}, {"max_tokens", 100}}).status, 200);
}

}  // namespace
}  // namespace espalier::serve
