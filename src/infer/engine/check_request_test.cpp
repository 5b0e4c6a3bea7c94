#include "infer/engine/check_request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "infer/engine/engine.h"
#include "infer/engine/toy_model_test.h"

namespace espalier::infer {
namespace check_request_test {

using Ids = std::vector<int32_t>;
const toy::ToyTokenizer kTokenizer = toy::tokenizer();

constexpr BatchModelShape kShape{
    .vocab_size = toy::kVocabulary, .page_tokens = 4, .num_pages = 32, .max_positions = 100};

Ids counted(int64_t count, int32_t first = 0) {
  Ids ids;
  for (int64_t at = 0; at < count; ++at) ids.push_back(static_cast<int32_t>((first + at * 5) % toy::kVocabulary));
  return ids;
}

Request request_of(const Ids& prompt, int64_t max_tokens) {
  Request request;
  request.prompt_ids = prompt;
  request.max_tokens = max_tokens;
  return request;
}

// What is wrong with a request, as the engine says it; nothing may have run.
std::string refusal(const Request& request, const BatchModelShape& shape = kShape, bool has_text = true) {
  toy::ToyModel model(shape);
  Engine engine(model, has_text ? &kTokenizer : nullptr, {});
  try {
    engine.submit(request, {});
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_FALSE(engine.step());
    return error.what();
  }
  return "";
}

template <class Change>
std::string refusal_of(const Change& change) {
  Request request = request_of({1, 2, 3}, 4);
  change(request);
  return refusal(request);
}

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << text << "' has no '" << part << "'";
}

TEST(CheckRequest, RefusesWhatIsTooLongWithBothNumbers) {
  EXPECT_EQ(refusal(request_of(counted(100), 1)), "");
  expect_has(refusal(request_of(counted(100), 2)), "the prompt has 100 tokens, and with max_tokens 2");
  expect_has(refusal(request_of(counted(90), 12)), "Ask for at most 11 tokens.");
  expect_has(refusal(request_of(counted(101), 1)), "Shorten the prompt to at most 100 tokens.");
  BatchModelShape endless = kShape;
  endless.max_positions = 0;
  expect_has(refusal(request_of(counted(120), 10), endless),
             "needs room for 129 tokens, and the key-value cache has 128");
  EXPECT_EQ(refusal(request_of(counted(120), 9), endless), "");
}

TEST(CheckRequest, RefusesWhatHasNoMeaning) {
  expect_has(refusal(request_of({}, 1)), "the prompt has no tokens");
  expect_has(refusal(request_of({1, 17}, 1)), "the prompt has the id 17, but the model's ids are 0 to 16");
  expect_has(refusal(request_of({1, -1}, 1)), "the prompt has the id -1");
  expect_has(refusal(request_of({1}, 0)), "max_tokens 0 asks for nothing");
  expect_has(refusal(request_of({1}, -3)), "max_tokens -3 is less than 0");
  expect_has(refusal_of([](Request& r) { r.min_tokens = 5; }), "min_tokens 5 is not within 0 to max_tokens (4)");
  expect_has(refusal_of([](Request& r) { r.score_from = 0; }), "score_from 0 is not within 1 to 3");
  expect_has(refusal_of([](Request& r) { r.score_from = 3, r.max_tokens = 0; }), "score_from 3 is not within 1 to 2");
  expect_has(refusal_of([](Request& r) { r.n = 3, r.best_of = 2; }), "n 3 is more than best_of 2");
  expect_has(refusal_of([](Request& r) { r.n = 0; }), "n 0 is not within 1 to 128");
  expect_has(refusal_of([](Request& r) { r.best_of = 129; }), "best_of 129 is not within 0 to 128");
  expect_has(refusal_of([](Request& r) { r.best_of = 2, r.stream = true; }), "best_of 2 cannot be streamed");
  expect_has(refusal_of([](Request& r) { r.priority = INT64_MIN; }), "priority -9223372036854775808 is not within");
  expect_has(refusal_of([](Request& r) { r.num_alternatives = 18; }), "num_alternatives 18 is not within 0 to 17");
  expect_has(refusal_of([](Request& r) { r.stop_ids = {99}; }), "stop_ids has the id 99");
  expect_has(refusal_of([](Request& r) { r.stop_sequences = {{}}; }), "one of stop_sequences has no ids");
  expect_has(refusal_of([](Request& r) { r.stop_sequences = {{1, 99}}; }), "stop_sequences has the id 99");
  expect_has(refusal_of([](Request& r) { r.banned_pairs = {{1, 99}}; }), "banned_pairs has the id 99");
  expect_has(refusal_of([](Request& r) { r.stop_strings = {""}; }), "a stop string is empty");
  expect_has(refusal_of([](Request& r) { r.stop_strings = {"\xE2\x82"}; }), "a stop string is not valid UTF-8");
  expect_has(refusal_of([](Request& r) { r.stop_ids = counted(17), r.min_tokens = 1; }),
             "each of the 17 ids stops the text");
  expect_has(refusal_of([](Request& r) {
               for (int32_t id = 1; id < 17; ++id) r.banned_pairs.push_back({5, id});
               r.stop_ids = {0};
               r.min_tokens = 1;
             }),
             "leave nothing to follow the id 5");
  expect_has(refusal_of([](Request& r) { r.constraint = "response_format"; }), "response_format: constrained output");
  expect_has(refusal_of([](Request& r) { r.encoder_ids = {1, 2}; }), "the model has no encoder to read 2 tokens");
  Request stops = request_of({1}, 1);
  stops.stop_strings = {"a"};
  expect_has(refusal(stops, kShape, /*has_text=*/false), "stop strings need a tokenizer");
  BatchModelShape encoding = kShape;
  encoding.has_encoder = true;
  encoding.encoder_positions = 100;
  expect_has(refusal(request_of({1}, 1), encoding), "there are no tokens for it to read");
  Request read = request_of({1}, 1);
  read.encoder_ids = counted(101);
  expect_has(refusal(read, encoding), "what the encoder reads has 101 tokens");
}

TEST(CheckRequest, RefusesSamplingOutsideItsRange) {
  const double no_number = std::nan("");
  expect_has(refusal_of([](Request& r) { r.sampling.temperature = -1; }), "temperature -1 is not 0 (greedy)");
  expect_has(refusal_of([&](Request& r) { r.sampling.temperature = no_number; }), "temperature nan");
  expect_has(refusal_of([](Request& r) { r.sampling.top_k = -1; }), "top_k -1 is less than 0");
  expect_has(refusal_of([](Request& r) { r.sampling.top_p = 1.5; }), "top_p 1.5 is not within 0 to 1");
  expect_has(refusal_of([](Request& r) { r.sampling.top_p_decay = 0.5; }), "top_p_decay needs top_p");
  expect_has(refusal_of([](Request& r) { r.sampling.top_p = 0.5, r.sampling.top_p_bound = 0.6; }),
             "top_p_bound 0.6 is not within 0 to 0.5");
  expect_has(refusal_of([](Request& r) { r.sampling.min_p = -0.5; }), "min_p -0.5 is not within 0 to 1");
  expect_has(refusal_of([](Request& r) { r.sampling.repetition_penalty = 0; }), "repetition_penalty 0");
  expect_has(refusal_of([&](Request& r) { r.sampling.presence_penalty = no_number; }), "presence_penalty nan");
  expect_has(refusal_of([](Request& r) { r.sampling.logit_bias = {{20, 1}}; }), "logit_bias has the id 20");
  // All at once.
  const std::string both = refusal_of([](Request& r) { r.n = 0, r.sampling.top_k = -1; });
  expect_has(both, "n 0");
  expect_has(both, "top_k -1");
}

TEST(CheckRequest, RefusesWhatBeamSearchCannotDo) {
  const auto beam_refusal = [](const auto& change) {
    return refusal_of([&](Request& r) {
      r.beam_width = 2;
      change(r);
    });
  };
  EXPECT_EQ(beam_refusal([](Request& r) { r.n = 2; }), "");
  expect_has(beam_refusal([](Request& r) { r.stream = true; }), "beam search cannot be combined with streaming");
  expect_has(beam_refusal([](Request& r) { r.n = 3; }), "n 3 is more than beam_width 2");
  expect_has(beam_refusal([](Request& r) { r.best_of = 2; }), "best_of: it gives the best texts");
  expect_has(beam_refusal([](Request& r) { r.sampling.top_p = 0.5; }), "nothing is drawn");
  expect_has(beam_refusal([](Request& r) { r.stop_strings = {"a"}; }), "give stop ids");
  expect_has(beam_refusal([](Request& r) { r.stop_sequences = {{1, 2}}; }), "give stop ids");
  expect_has(beam_refusal([](Request& r) { r.banned_pairs = {{1, 2}}; }), "banned pairs");
  expect_has(beam_refusal([](Request& r) { r.score_from = 1; }), "scores of the prompt");
  expect_has(beam_refusal([](Request& r) { r.num_alternatives = 1; }), "alternatives");
  expect_has(beam_refusal([](Request& r) { r.min_tokens = 1; }), "min_tokens");
}

}  // namespace check_request_test
}  // namespace espalier::infer
