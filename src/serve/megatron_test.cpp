// PUT /api: Megatron's fields and words.
#include "infer/engine/completion.h"
#include "serve/toy_service_test.h"

namespace espalier::serve {
namespace {

using Json = nlohmann::json;

class Megatron : public ToyService {
 protected:
  infer::Completion wanted(const infer::Request& request) {
    infer::toy::ToyModel model({.vocab_size = 257, .page_tokens = 8, .num_pages = 64, .max_positions = 100});
    infer::Engine engine(model, &tokenizer_, {});
    return infer::complete(engine, {request}).front();
  }
};

TEST_F(Megatron, GivesTextSegmentsAndLogprobs) {
  start();
  infer::Request request{.prompt_ids = {'a', 'b', 'c'}, .max_tokens = 5};
  request.sampling = {.temperature = 0.5, .top_k = 40, .seed = 17};
  request.stop_ids = {256};
  request.score_from = 1;
  const infer::Completion direct = wanted(request);
  const Json body = {{"prompts", {"abc"}}, {"tokens_to_generate", 5}, {"logprobs", true}, {"temperature", 0.5},
                     {"top_k", 40},        {"random_seed", 17},       {"no_log", true}};
  const PlainReply reply = megatron(body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  std::vector<int32_t> ids = request.prompt_ids;
  std::vector<double> scores;
  for (const infer::TokenScore& score : direct.prompt_scores) scores.push_back(score.log_probability);
  for (const infer::TokenScore& score : direct.choices[0].tokens) {
    ids.push_back(score.id);
    scores.push_back(score.log_probability);
  }
  EXPECT_EQ(reply.json()["text"], Json({tokenizer_.decode(ids, false)}));
  EXPECT_EQ(reply.json()["logprobs"], Json({scores}));
  ASSERT_EQ(reply.json()["segments"][0].size(), ids.size());
  EXPECT_EQ(reply.json()["segments"][0][1], "b");
  EXPECT_EQ(ask("POST /api", body.dump()).body, reply.body);
}

TEST_F(Megatron, ScoresWithoutMakingText) {
  start();
  const Json made = megatron({{"prompts", {"abc", "x"}}, {"tokens_to_generate", 0}, {"logprobs", true}}).json();
  EXPECT_EQ(made["text"], Json({"abc", "x"}));
  EXPECT_EQ(made["logprobs"][0].size(), 2u);
  EXPECT_EQ(made["logprobs"][1].size(), 0u);
}

TEST_F(Megatron, AddsTheBeginningThatIsAskedFor) {
  start();
  const Json made = megatron({{"prompts", {""}}, {"add_BOS", true}, {"tokens_to_generate", 2}, {"top_k", 1}}).json();
  EXPECT_EQ(made["segments"][0].size(), 3u);
  EXPECT_EQ(made["segments"][0][0], "<end>");
  EXPECT_TRUE(made["logprobs"].is_null());
}

TEST_F(Megatron, SearchesWithBeams) {
  start();
  infer::Request request{.prompt_ids = {'a', 'b'}, .max_tokens = 4};
  request.n = request.beam_width = 3;
  request.length_penalty = 0.5;
  request.stop_ids = {'e'};
  const infer::Completion direct = wanted(request);
  const Json made = megatron({{"prompts", {"ab"}},
                              {"tokens_to_generate", 4},
                              {"beam_width", 3},
                              {"length_penalty", 0.5},
                              {"stop_token", int('e')}})
                        .json();
  ASSERT_EQ(made["scores"].size(), 3u) << made;
  for (size_t beam = 0; beam < 3; ++beam) EXPECT_EQ(made["scores"][beam], direct.choices[beam].finish.score);
  EXPECT_FALSE(made.contains("logprobs"));
}

TEST_F(Megatron, StopsAtLinesOfTheModelsOwnTokenizer) {
  start();
  for (int seed = 0; seed < 40; ++seed) {
    const Json body = {{"prompts", {"ab:"}},
                       {"tokens_to_generate", 60},
                       {"random_seed", seed},
                       {"stop_on_eol", true},
                       {"prevent_newline_after_colon", true}};
    const Json segments = megatron(body).json()["segments"][0];
    for (size_t at = 3; at < segments.size(); ++at) {
      EXPECT_FALSE(segments[at] == "\n" && segments[at - 1] == ":") << seed;
      EXPECT_FALSE(segments[at] == "\n" && at + 1 < segments.size()) << seed;
    }
  }
}

// In Megatron's words, of its text_generation_server.py.
TEST_F(Megatron, RefusesInMegatronsWords) {
  start();
  const std::vector<std::pair<Json, std::string>> wrong = {
      {{}, "prompts argument required"},
      {{{"prompts", {"a"}}, {"max_len", 3}}, "max_len is no longer used.  Replace with tokens_to_generate"},
      {{{"prompts", {"a"}}, {"sentences", {"a"}}}, "sentences is no longer used.  Replace with prompts"},
      {{{"prompts", "a"}}, "prompts is not a list of strings"},
      {{{"prompts", Json::array()}}, "prompts is empty"},
      {{{"prompts", std::vector<std::string>(129, "a")}}, "Maximum number of prompts is 128"},
      {{{"prompts", {"a"}}, {"tokens_to_generate", "3"}}, "tokens_to_generate must be an integer greater than 0"},
      {{{"prompts", {"a"}}, {"tokens_to_generate", -1}},
       "tokens_to_generate must be an integer greater than or equal to 0"},
      {{{"prompts", {"a"}}, {"tokens_to_generate", 0}}, "tokens_to_generate=0 implies logprobs should be True"},
      {{{"prompts", {"a"}}, {"logprobs", 1}}, "logprobs must be a boolean value"},
      {{{"prompts", {"a"}}, {"temperature", 0}}, "temperature must be a positive number less than or equal to 100.0"},
      {{{"prompts", {"a"}}, {"top_k", 1.5}},
       "top_k must be an integer equal to or greater than 0 and less than or equal to 1000"},
      {{{"prompts", {"a"}}, {"top_k", 1001}},
       "top_k must be equal to or greater than 0 and less than or equal to 1000"},
      {{{"prompts", {"a"}}, {"top_p", 1}}, "top_p must be a positive float less than or equal to 1.0"},
      {{{"prompts", {"a"}}, {"top_p", 1.5}}, "top_p must be less than or equal to 1.0"},
      {{{"prompts", {"a"}}, {"top_p", 0.5}, {"top_k", 4}}, "cannot set both top-k and top-p samplings."},
      {{{"prompts", {"a"}}, {"top_p_decay", 0.5}}, "top_p_decay cannot be set without top_p"},
      {{{"prompts", {"a"}}, {"top_p", 0.5}, {"top_p_decay", 1.5}}, "top_p_decay must be less than or equal to 1.0"},
      {{{"prompts", {"a"}}, {"top_p_bound", 0.5}}, "top_p_bound cannot be set without top_p"},
      {{{"prompts", {"a"}}, {"top_p", 0.5}, {"top_p_bound", 0.6}},
       "top_p_bound must be greater than 0 and less than top_p"},
      {{{"prompts", {"a"}}, {"add_BOS", "yes"}}, "add_BOS must be a boolean value"},
      {{{"prompts", {"a", ""}}}, "Empty prompts require add_BOS=true"},
      {{{"prompts", {"a"}}, {"stop_on_eol", 1}}, "stop_on_eol must be a boolean value"},
      {{{"prompts", {"a"}}, {"random_seed", 1.5}}, "random_seed must be integer"},
      {{{"prompts", {"a"}}, {"random_seed", -2}}, "random_seed must be a positive integer"},
      {{{"prompts", {"a"}}, {"no_log", 0}}, "no_log must be a boolean value"},
      {{{"prompts", {"a"}}, {"beam_width", 1.5}}, "beam_width must be integer"},
      {{{"prompts", {"a"}}, {"beam_width", 0}}, "beam_width must be an integer > 1"},
      {{{"prompts", {"a", "b"}}, {"beam_width", 2}}, "When doing beam_search, batch size must be 1"},
      {{{"prompts", {"a"}}, {"stop_token", "x"}}, "stop_token must be an integer"},
      {{{"prompts", {"a"}}, {"length_penalty", 1}}, "length_penalty must be a float"},
      {{{"prompts", {"a"}}, {"top_q", 1}}, "top_q is not a known field; did you mean top_k, top_p?"},
  };
  for (const auto& [body, message] : wrong) {
    const PlainReply reply = megatron(body.is_null() ? Json::object() : body);
    EXPECT_EQ(reply.status, 400) << body << reply.body;
    if (message.find("top_q") == std::string::npos)
      EXPECT_EQ(reply.message(), message) << body;
    else
      EXPECT_TRUE(reply.message().starts_with("top_q is not a known field")) << reply.message();
  }
}

}  // namespace
}  // namespace espalier::serve
