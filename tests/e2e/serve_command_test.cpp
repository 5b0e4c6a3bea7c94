// `espalier serve` as a process: a run is trained with a tokenizer that has a chat template, asked, and ended by
// SIGTERM.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/command.h"

namespace espalier {
namespace serve_command_test {

using Json = nlohmann::json;

class ServeCommand : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    fs::create_directories(folder_ / "work/tokenizer");
    fs::copy_file(root() + "/tests/data/tokenizers/qwen2/tokenizer.json", folder_ / "work/tokenizer/tokenizer.json");
    write_file_atomically(folder_ / "work/tokenizer/tokenizer_config.json",
                          R"({"bos_token": "<s>", "eos_token": "</s>"})");
    write_file_atomically(folder_ / "work/tokenizer/chat_template.jinja",
                          "{% for m in messages %}\n{{ bos_token }}{{ m.role }}: {{ m.content }}\n{% endfor %}\n"
                          "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}");
  }
  Json body(const std::string& name) const {
    const std::string reply = read_file(folder_ / "work" / name);
    return Json::parse(reply.substr(std::min(reply.find("\r\n\r\n"), reply.size())), nullptr,
                       /*allow_exceptions=*/false);
  }
};

const char* const kTrained = R"(
  set -e
  named='--tokenizer-type PretrainedFromHF --tokenizer-name-or-path tokenizer'
  espalier preprocess $named --append-eod --output-prefix owt --input "$root/tests/data/owt-20.jsonl" 2>messages
  espalier train gpt $named --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 64 \
    --max-position-embeddings 64 --micro-batch-size 2 --global-batch-size 2 --lr 1e-3 --split 100,0,0 --eval-iters 0 \
    --num-threads 1 --train-iters 2 --save-interval 2 --data-path owt_text_document --save run >trained 2>&1
  ask() {  # ask PATH BODY: the reply, through bash alone
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf 'POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' "$1" "${#2}" "$2" >&3
    cat <&3
  }
  start() {  # start OPTION...
    espalier serve --load run --port 0 --num-threads 1 "$@" >address 2>messages & server=$!
    for attempt in {1..300}; do [ -s address ] && break; sleep 0.1; done
    port=$(<address) port=${port##*:}
  }
)";

TEST_F(ServeCommand, AnswersChatsByTheTemplateThatTravelsWithTheRunAndEndsInGoodOrder) {
  const Outcome outcome = bash(concat("root=", root(), "\n", kTrained, R"(
    espalier checkpoint export-hf --load run --output hf >exported 2>&1
    espalier checkpoint import-hf --input hf --save again >>exported 2>&1
    cmp tokenizer/chat_template.jinja hf/chat_template.jinja
    cmp tokenizer/chat_template.jinja again/step_*/tokenizer/chat_template.jinja
    rest='"max_tokens": 4, "temperature": 0, "ignore_eos": true'
    start
    ask /v1/chat/completions '{"messages": [{"role": "user", "content": "Hello"}], '"$rest"'}' >chat
    ask /tokenize '{"prompt": "<s>user: Hello\n"}' >ids
    ids=$(grep -o '\[[0-9,]*\]' ids)
    ask /v1/completions '{"prompt": '"$ids, $rest"'}' >plain
    ask /v1/chat/completions '{"messages": [{"role": "user", "content": "Hello"}], "stream": true, '"$rest"'}' >stream
    ask /v1/chat/completions '{"messages": [{"role": "system", "content": "x"}]}' >raised
    kill -TERM $server; wait $server; echo "exit $?")"));
  EXPECT_NE(outcome.output.find("exit 0"), std::string::npos) << outcome.output << outcome.errors;
  const Json chat = body("chat"), plain = body("plain");
  ASSERT_TRUE(chat.contains("choices")) << chat;
  ASSERT_TRUE(plain.contains("choices")) << plain;
  EXPECT_EQ(chat["choices"][0]["message"]["content"], plain["choices"][0]["text"]);
  EXPECT_EQ(chat["usage"], plain["usage"]);
  const std::string stream = read_file(folder_ / "work/stream");
  EXPECT_NE(stream.find("\"delta\":{\"role\":\"assistant\",\"content\":\"\"}"), std::string::npos) << stream;
  EXPECT_NE(stream.find("data: [DONE]"), std::string::npos) << stream;
  EXPECT_EQ(body("raised")["error"]["message"], "no system here");
  EXPECT_NE(read_file(folder_ / "work/raised").find(" 400 "), std::string::npos);
}

TEST_F(ServeCommand, RefusesATemplateOutsideOfTheSubsetAtTheStart) {
  write_file_atomically(folder_ / "work/bad.jinja", "{{ messages }}\n{{ messages|xmlattr }}");
  const Outcome given = bash("espalier serve --load run --chat-template bad.jinja --max-waiting x");
  EXPECT_EQ(given.exit_code, 2);
  EXPECT_NE(given.errors.find("--chat-template: bad.jinja:2: the filter xmlattr, which is not supported"),
            std::string::npos)
      << given.errors;
  write_file_atomically(folder_ / "work/tokenizer/chat_template.jinja", "{% include 'x' %}");
  const Outcome own = bash(concat("root=", root(), "\n", kTrained, R"(
    espalier serve --load run --port 0 --num-threads 1 || echo "exit $?"
    printf '{{ messages[0].content }}' >good.jinja
    start --chat-template good.jinja
    ask /v1/chat/completions '{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}' >chat
    kill -TERM $server; wait $server)"));
  EXPECT_NE(own.errors.find(
                "chat_template.jinja:1: the statement '{% include 'x' %}' of a template is not supported; another "
                "template can be given with --chat-template FILE"),
            std::string::npos)
      << own.errors;
  EXPECT_EQ(own.output, "exit 65\n");
  EXPECT_TRUE(body("chat").contains("choices")) << body("chat");
}

TEST_F(ServeCommand, WithoutATemplateSaysHowToGiveOne) {
  fs::remove(folder_ / "work/tokenizer/chat_template.jinja");
  const Outcome outcome = bash(concat("root=", root(), "\n", kTrained, R"(
    start
    ask /v1/chat/completions '{"messages": [{"role": "user", "content": "Hello"}]}' >chat
    kill -TERM $server; wait $server; echo "exit $?")"));
  EXPECT_EQ(outcome.output, "exit 0\n") << outcome.errors;
  EXPECT_EQ(body("chat")["error"]["code"], "no_chat_template");
  EXPECT_NE(body("chat")["error"]["message"].get<std::string>().find("--chat-template FILE"), std::string::npos);
}

}  // namespace serve_command_test
}  // namespace espalier
