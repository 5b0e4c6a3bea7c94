// Passages as a user of an index meets them: beside the answers of `espalier serve`, and refused where index, encoder
// and passages do not belong together.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/command.h"

namespace espalier {
namespace passages_command_test {

using Json = nlohmann::json;

// 60 documents, each about a word of its own, which all of its sentences have; passages from the first two sentences of
// each, and questions from another one.
constexpr const char* kMakeTexts = R"(awk 'BEGIN {
  srand(3); n = split("and arger aus brown adwjj ajvse apje don mask the der die das", words, " ")
  print "id\ttext\ttitle" > "evidence.tsv"
  for (d = 0; d < 60; ++d) {
    topic = sprintf("%c%c", 97 + d % 26, 97 + int(d / 26)); text = ""; passage = ""
    for (sentence = 0; sentence < 6; ++sentence) {
      line = topic
      for (w = 0; w < 3; ++w) line = line " " words[int(rand() * n) + 1]
      if (sentence == 4) print line " " topic > "questions.txt"
      line = toupper(substr(line, 1, 1)) substr(line, 2) " " topic ". "
      text = text line
      if (sentence < 2) passage = passage line
    }
    printf "{\"text\": \"%s\", \"title\": \"%s\"}\n", text, topic > "texts.jsonl"
    printf "%d\t%s\t%s\n", 100 + d, passage, topic > "evidence.tsv"
  }
}')";

class PassagesCommand : public Command {
 protected:
  // The retriever `run`, and `index` of evidence.tsv.
  void SetUp() override {
    Command::SetUp();
    std::string commands = concat(kMakeTexts, "; set -e; ");
    for (const char* key : {"text", "title"})
      commands += concat("espalier preprocess --input texts.jsonl --json-keys ", key, " --output-prefix data ",
                         "--tokenizer-type BertWordPieceLowerCase", vocabulary(),
                         std::string(key) == "text" ? "--split-sentences" : "", " 2>/dev/null; ");
    const Outcome made = made_once(
        concat(commands, train(), "train --train-iters 60 --save run; ",
               "espalier index embed --load run --evidence-data-path evidence.tsv --embedding-path index 2>/dev/null"));
    ASSERT_EQ(made.exit_code, 0) << made.errors;
  }
  std::string vocabulary() const {
    return concat(" --vocab-file ", root(), "/tests/data/megatron_tokenizers/bert_lower/vocab.txt ");
  }
  // A function of the shell.
  std::string train() const {
    return concat(
        "train() { espalier train ict ", vocabulary(),
        "--num-layers 1 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --max-position-embeddings 40 "
        "--hidden-dropout 0 --attention-dropout 0 --init-method-std 0.1 --data-path data_text_sentence "
        "--titles-data-path data_title_document --split 100,0,0 --eval-iters 0 --micro-batch-size 16 "
        "--lr 3e-3 --num-threads 1 --lr-decay-style constant --save-interval 1000 "
        "--biencoder-shared-query-context-model \"$@\" 2>/dev/null; }; ");
  }
};

TEST_F(PassagesCommand, AreServedWithTheOneThatAnswersFirst) {
  const Outcome outcome = bash(
      concat("set -e; espalier train gpt ", tiny_gpt_data(),
             "--num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 64 --max-position-embeddings 512 "
             "--micro-batch-size 2 --global-batch-size 2 --lr 1e-3 --split 100,0,0 --eval-iters 0 --num-threads 1 "
             "--train-iters 1 --save-interval 1 --save gpt 2>/dev/null; ",
             R"(
    ask() {  # ask PATH BODY: the body of the reply
      exec 3<>"/dev/tcp/127.0.0.1/$port"
      printf 'POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' "$1" "${#2}" "$2" >&3
      cat <&3 | tail -n 1; echo
    }
    espalier index search index --load run --questions questions.txt --top-k 3 --json 2>/dev/null >found
    espalier serve --load gpt --port 0 --num-threads 1 --retrieval-index index --retrieval-model run \
      --evidence-data-path evidence.tsv >address 2>messages & server=$!
    for attempt in {1..300}; do [ -s address ] && break; sleep 0.1; done
    port=$(<address) port=${port##*:}
    while read question; do ask /retrieve "{\"query\": \"$question\", \"k\": 3}"; done <questions.txt >served
    ask /v1/completions '{"prompt": "aa and aa", "max_tokens": 2, "retrieve": {"k": 2, "prepend": true}}' >completed
    kill -TERM $server; wait $server; echo "exit $?")"));
  ASSERT_NE(outcome.output.find("exit 0"), std::string::npos) << outcome.output << outcome.errors;
  std::istringstream searched(read_file(folder_ / "work/found")), served(read_file(folder_ / "work/served"));
  int first = 0, count = 0;
  for (std::string line, reply; std::getline(searched, line); ++count) {
    while (std::getline(served, reply) && reply.empty()) {
    }
    const Json hits = Json::parse(line), passages = Json::parse(reply)["passages"];
    ASSERT_EQ(passages.size(), 3u) << reply << read_file(folder_ / "work/messages");
    for (size_t place = 0; place < 3; ++place) {
      EXPECT_EQ(passages[place]["id"], hits["ids"][place]);
      EXPECT_EQ(passages[place]["score"], hits["scores"][place]);
    }
    first += passages[0]["id"] == 100 + count;
    const std::string title = {static_cast<char>('a' + (passages[0]["id"].get<int>() - 100) % 26),
                               static_cast<char>('a' + (passages[0]["id"].get<int>() - 100) / 26)};
    EXPECT_EQ(passages[0]["title"], title);
    EXPECT_NE(passages[0]["text"].get<std::string>().find(title + "."), std::string::npos) << passages[0];
  }
  EXPECT_EQ(count, 60);
  EXPECT_GT(first, 30) << "of 60 questions";
  const Json completed = Json::parse(read_file(folder_ / "work/completed"));
  ASSERT_TRUE(completed.contains("passages")) << completed;
  EXPECT_EQ(completed["passages"].size(), 2u);
  EXPECT_GT(completed["usage"]["prompt_tokens"].get<int>(), 12) << completed;
}

TEST_F(PassagesCommand, AreThoseOfTheIndexByItsEncoder) {
  const std::string serve = "espalier serve --load gpt --port 0 ";
  const Outcome outcome = bash(concat(
      "set -e; ", train(), "train --train-iters 1 --save other; sed 's/arger/aus/' evidence.tsv >changed.tsv; ",
      "set +e; espalier index search index --load other --question aa; echo $?; ",
      "espalier index search index --load run --retriever-seq-length 7 --question aa; echo $?; ",
      "printf \"aa\\t['arger']\\n\" >questions.tsv; evaluate() { espalier index evaluate --embedding-path index "
      "--qa-data-test questions.tsv \"$@\" >/dev/null; echo $?; }; ",
      "evaluate --load run --evidence-data-path changed.tsv; evaluate --load other --evidence-data-path evidence.tsv; ",
      "evaluate --load run --evidence-data-path evidence.tsv; ",
      // Joined from the shards of parts: the encoder is known, the passages are not.
      "espalier index build --embeddings index/shard-*.safetensors --embedding-path joined 2>/dev/null; ",
      "espalier index search joined --load other --question aa; echo $?; ",
      "espalier index evaluate --embedding-path joined --qa-data-test questions.tsv --load run --evidence-data-path "
      "evidence.tsv >/dev/null; echo $?; ",
      serve, "--retrieval-index index --retrieval-memory much; echo $?"));
  EXPECT_EQ(outcome.output, "65\n65\n65\n65\n0\n65\n0\n2\n") << outcome.errors;
  for (const char* problem :
       {"'index' was made by another encoder: its fingerprint is ", "and that of other, step 1, is",
        "'index' was made of other passages than those of changed.tsv: passages ",
        "'joined' was made by another encoder", "'joined' does not say which passages it is of",
        "--retrieval-model, --evidence-data-path are missing: passages are found with an index",
        "--retrieval-memory much: expected an amount such as 512MiB"})
    EXPECT_NE(outcome.errors.find(problem), std::string::npos) << problem << "\n" << outcome.errors;
}

}  // namespace passages_command_test
}  // namespace espalier
