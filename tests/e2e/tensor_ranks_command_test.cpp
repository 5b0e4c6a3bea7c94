// One model over several processes: generate, serve and eval under espalier launch, compared with one process.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/command.h"

namespace espalier {
namespace tensor_ranks_command_test {

using Json = nlohmann::json;

// A BLOOM: slopes by head, a norm after the embedding; a vocabulary that two ranks do not divide.
class TensorRanks : public Command {
 protected:
  void train(const std::string& more) {
    const Outcome outcome = made_once(
        concat("espalier train gpt ", tiny_gpt_data(),
               "--num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 64 --max-position-embeddings "
               "64 --micro-batch-size 2 "
               "--global-batch-size 2 --lr 1e-2 --train-iters 6 --split 100,0,0 --eval-iters 0 --num-threads 1 "
               "--make-vocab-size-divisible-by 1 --save run --save-interval 6 ",
               more));
    ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  }
  void train_bloom() { train("--position-embedding-type alibi --embed-layernorm --ema 0.9"); }
};

std::vector<Json> objects(const std::string& lines) {
  std::vector<Json> result;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) result.push_back(Json::parse(line, nullptr, false));
  return result;
}

void expect_near(const Json& found, const Json& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t at = 0; at < found.size(); ++at)
    EXPECT_NEAR(found[at].get<double>(), expected[at].get<double>(), 1e-5) << at;
}

TEST_F(TensorRanks, GenerateSaysWhatItSaysInOneProcess) {
  train_bloom();
  const std::string words =
      "generate --load run --prompt 'The president' 'A' --greedy --tokens-to-generate 9 --json --num-threads 1 ";
  std::string plain;
  for (const std::string more : {"", "--stream-layers", "--int8-weights", "--ema"}) {
    const Outcome one = bash(concat("espalier ", words, more)),
                  two = bash(
                      concat("espalier launch --nproc-per-node 2 ", words, "--tensor-model-parallel-size 2 ", more));
    ASSERT_EQ(one.exit_code, 0) << one.errors;
    ASSERT_EQ(two.exit_code, 0) << two.errors;
    EXPECT_NE(two.errors.find("the model is divided over 2 processes, which communicate by shared memory"),
              std::string::npos)
        << two.errors;
    const std::vector<Json> expected = objects(one.output), found = objects(two.output);
    ASSERT_EQ(expected.size(), 2u) << one.output;
    ASSERT_EQ(found.size(), 2u) << two.output;
    for (size_t prompt = 0; prompt < 2; ++prompt) {
      EXPECT_EQ(found[prompt]["text"], expected[prompt]["text"]) << more;
      EXPECT_EQ(found[prompt]["generated_ids"], expected[prompt]["generated_ids"]) << more;
      expect_near(found[prompt]["logprobs"], expected[prompt]["logprobs"]);
    }
    if (more.empty()) plain = two.output;
    EXPECT_TRUE(more != "--stream-layers" || two.output == plain) << "not the same bits: " << two.output << plain;
  }
  const std::string prompts = "printf 'The president\\nA\\n\\nOf\\n' | ",
                    file = "generate --load run --genfile $f --num-samples 5 --top-k 1 --tokens-to-generate 7";
  const Outcome others = bash(concat(
      "set -e; ", prompts, "espalier launch --nproc-per-node 2 generate --load run --tensor-model-parallel-size 2 ",
      "--top-k 1 --tokens-to-generate 3 >two; ", prompts, "espalier generate --load run --top-k 1 ",
      "--tokens-to-generate 3 | cmp - two; f=one.jsonl; espalier ", file, "; f=two.jsonl; ",
      "espalier launch --nproc-per-node 2 ", file, " --tensor-model-parallel-size 2; cmp one.jsonl two.jsonl"));
  EXPECT_EQ(others.exit_code, 0) << others.output << others.errors;
}

TEST_F(TensorRanks, EvalScoresAsInOneProcess) {
  train_bloom();
  write_file_atomically(folder_ / "work/requests.jsonl",
                        "{\"context\": \"The president\", \"continuation\": \" of the United States\"}\n"
                        "{\"context\": \"\", \"continuation\": \"Hello\"}\n");
  const std::string words = "eval --load run --requests requests.jsonl ";
  const Outcome one = bash("espalier " + words),
                two = bash(concat("espalier launch --nproc-per-node 2 ", words, "--tensor-model-parallel-size 2"));
  ASSERT_EQ(two.exit_code, 0) << two.errors;
  const std::vector<Json> expected = objects(one.output), found = objects(two.output);
  ASSERT_EQ(expected.size(), 2u) << one.output;
  ASSERT_EQ(found.size(), 2u) << two.output;
  for (size_t line = 0; line < 2; ++line) {
    const double tokens = expected[line]["tokens"];
    EXPECT_EQ(found[line]["tokens"], tokens);
    EXPECT_EQ(found[line]["is_greedy"], expected[line]["is_greedy"]);
    EXPECT_NEAR(found[line]["loglikelihood"].get<double>(), expected[line]["loglikelihood"].get<double>(),
                1e-5 * tokens);
  }
}

const char* const kServer = R"(
  ask() {  # ask METHOD PATH BODY: the reply, through bash alone
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf '%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' "$1" "$2" "${#3}" "$3" >&3
    cat <&3
  }
  start() {
    espalier launch --nproc-per-node 2 serve --load run --port 0 --num-threads 1 --tensor-model-parallel-size 2 \
      >address 2>messages & launcher=$!
    for attempt in {1..600}; do [ -s address ] && break; sleep 0.1; done
    port=$(<address) port=${port##*:}
  }
  rank() {  # rank N: its process
    for pid in $(cat /proc/$launcher/task/*/children); do
      tr '\0' '\n' </proc/$pid/environ | grep -qx "RANK=$1" && echo $pid
    done
  }
)";

std::string reply_body(const std::string& reply) {
  return reply.substr(std::min(reply.find("\r\n\r\n") + 4, reply.size()));
}

TEST_F(TensorRanks, ServeAnswersAsGenerateDoesAndEndsInGoodOrder) {
  train_bloom();
  const Outcome outcome = bash(concat(kServer, R"(
    start
    ask GET /health '' >health
    body='{"prompt": "The president", "max_tokens": 9, "temperature": 0, "ignore_eos": true, "logprobs": 1}'
    ask POST /v1/completions "$body" >first
    for i in 1 2 3; do ask POST /v1/completions "$body" >again$i & waits[$i]=$!; done
    ask POST /v1/completions '{"prompt": ["A", "Of the"], "max_tokens": 30, "temperature": 1, "seed": 5}' >others
    wait ${waits[@]}
    sleep 17  # longer than a rank may sleep without a sign of life
    ask POST /v1/completions "$body" >late
    follower=$(rank 1)
    kill -TERM $launcher; wait $launcher; echo "exit $?"
    kill -0 $follower 2>/dev/null && echo "rank 1 is left"
    espalier launch --nproc-per-node 2 generate --load run --tensor-model-parallel-size 2 --num-threads 1 \
      --prompt 'The president' --greedy --no-stop-at-eod --tokens-to-generate 9 --json >generated)"));
  EXPECT_EQ(outcome.output, "exit 0\n") << outcome.errors << read_file(folder_ / "work/messages");
  const auto answer = [&](const std::string& name) {
    return Json::parse(reply_body(read_file(folder_ / "work" / name)), nullptr, false);
  };
  EXPECT_EQ(answer("health")["status"], "ok");
  const Json generated = Json::parse(read_file(folder_ / "work/generated"));
  for (const std::string name : {"first", "again1", "again2", "again3", "late"}) {
    const Json found = answer(name);
    ASSERT_TRUE(found.contains("choices")) << name << ": " << found;
    EXPECT_EQ(found["choices"][0]["text"], generated["text"]) << name;
    EXPECT_EQ(found["choices"][0]["logprobs"]["token_logprobs"], generated["logprobs"]) << name << ": the same bits";
  }
  EXPECT_EQ(answer("others")["choices"].size(), 2u);
}

TEST_F(TensorRanks, ARankThatDiesEndsTheServer) {
  train_bloom();
  const Outcome outcome = bash(concat(kServer, R"(
    start
    kill -KILL $(rank 1); wait $launcher; echo "exit $?")"));
  EXPECT_EQ(outcome.output, "exit 137\n") << outcome.errors;
  EXPECT_NE(read_file(folder_ / "work/messages").find("rank      : 1 (local_rank: 1)"), std::string::npos)
      << read_file(folder_ / "work/messages");
}

// They would meet in different ways, and wait for each other until the time limit.
TEST_F(TensorRanks, RanksByHandThatDifferOverTheirMachinesAreRefused) {
  train_bloom();
  const Outcome outcome = bash(R"(
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 9000))
    words='--load run --prompt A --tokens-to-generate 2 --num-threads 1 --tensor-model-parallel-size 2'
    RANK=0 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 espalier generate $words &
    RANK=1 espalier generate $words 2>second; echo "exit $?"; kill %1; wait; cat second)");
  EXPECT_NE(outcome.output.find("exit 2\n"), std::string::npos) << outcome.output << outcome.errors;
  EXPECT_NE(outcome.output.find("ranks on one machine (by LOCAL_WORLD_SIZE or MASTER_ADDR): all here, not all there"),
            std::string::npos)
      << outcome.output << outcome.errors;
}

TEST_F(TensorRanks, WhatCannotBeDividedIsRefusedByName) {
  train("--position-embedding-type rope --num-attention-heads 6 --num-key-value-heads 3 --hidden-size 48");
  const std::string generate = "generate --load run --prompt A --tokens-to-generate 2 ";
  const auto refusal = [&](const std::string& command) {
    const Outcome outcome = bash(command);
    EXPECT_EQ(outcome.exit_code, 2) << command << outcome.errors;
    return outcome.errors;
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  contains(refusal(concat("espalier launch --nproc-per-node 2 ", generate, "--tensor-model-parallel-size 2")),
           "--tensor-model-parallel-size 2 does not divide the 3 heads of keys and values of the model's layers; use 1 "
           "or 3");
  contains(refusal(concat("espalier ", generate, "--tensor-model-parallel-size 2")),
           "--tensor-model-parallel-size 2 needs 2 processes, but there is 1: espalier launch --nproc-per-node 2 "
           "generate");
  contains(refusal("espalier launch --nproc-per-node 2 " + generate),
           "espalier generate runs one model over all ranks, which are 2, and --tensor-model-parallel-size is 1");
  contains(refusal("espalier launch --nproc-per-node 2 eval --load run --requests none"),
           "espalier eval runs one model over all ranks");
  contains(refusal("espalier serve --load run --beside run --tensor-model-parallel-size 3"),
           "--beside is a second one: leave one out");
  contains(
      refusal("espalier eval --load run --tasks x --data y --int8-weights --int8-shift --tensor-model-parallel-size 3"),
      "--int8-shift asks two models");
  const Outcome three =
      bash(concat("espalier launch --nproc-per-node 3 ", generate,
                  "--tensor-model-parallel-size 3 --json --greedy; espalier ", generate, "--json --greedy"));
  const std::vector<Json> found = objects(three.output);
  ASSERT_EQ(found.size(), 2u) << three.output << three.errors;
  EXPECT_EQ(found[0]["generated_ids"], found[1]["generated_ids"]);
  expect_near(found[0]["logprobs"], found[1]["logprobs"]);
}

}  // namespace tensor_ranks_command_test
}  // namespace espalier
