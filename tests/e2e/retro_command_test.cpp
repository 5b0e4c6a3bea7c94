// `espalier train retro` as a user meets it: texts that are found again elsewhere, learnt with their neighbours and
// without; layouts; what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <sstream>

#include "tests/support/command.h"
#include "tests/support/long_version.h"

namespace espalier {
namespace retro_command_test {

class RetroCommand : public Command {
 protected:
  // `count` texts of 31 random numbers below 30, all of them once, and then all of them again: each chunk of a text is
  // found in another document, which goes on as the text does. Texts and samples have the same length.
  void write_repetitions(int count) const {
    std::mt19937 random(3);
    std::string once;
    for (int document = 0; document < count; ++document) {
      once += "{\"text\": \"";
      for (int at = 0; at < 31; ++at) once += concat(at == 0 ? "" : " ", random() % 30);
      once += "\"}\n";
    }
    write_file_atomically(folder_ / "work/texts.jsonl", once + once);
  }
  std::string preprocess() const {
    return "espalier preprocess --input texts.jsonl --output-prefix texts --tokenizer-type NullTokenizer "
           "--vocab-size 31 --append-eod 2>/dev/null; ";
  }
  // The last tenth of the documents is kept for validation; each of these stands in the training set once.
  std::string flags() const {
    return "--num-layers 6 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 "
           "--micro-batch-size 16 --global-batch-size 16 --lr 3e-3 --lr-decay-style constant "
           "--hidden-dropout 0 --attention-dropout 0 --retro-encoder-hidden-dropout 0 "
           "--retro-encoder-attention-dropout 0 --data-path texts_text_document --tokenizer-type NullTokenizer "
           "--vocab-size 31 --make-vocab-size-divisible-by 1 --split 90,10,0 --eval-interval 1000 --eval-iters 4 "
           "--num-threads 2 --log-interval 100 --retro-workdir work --retro-chunk-length 8 ";
  }
  // "run", of two steps on 40 texts, and its database, "work".
  void make_small_run() const {
    write_repetitions(40);
    const std::string run = concat(flags(), "--train-iters 2 --retro-add-retriever --eval-iters 1 --num-threads 1 ");
    const Outcome made =
        made_once(concat("set -e; export OMP_WAIT_POLICY=passive; ", preprocess(), "espalier retro build ", run,
                         "2>/dev/null; espalier train retro ", run, "--save-interval 2 --save run"));
    ASSERT_EQ(made.exit_code, 0) << made.errors;
  }
  double valid_loss(const std::string& run) const {
    std::istringstream lines(read_file(folder_ / "work" / run / "metrics.jsonl"));
    double loss = -1;
    for (std::string line; std::getline(lines, line);) {
      const nlohmann::json record = nlohmann::json::parse(line);
      if (record.contains("valid")) loss = record.at("valid").begin()->at("lm_loss").get<double>();
    }
    return loss;
  }
};

TEST_F(RetroCommand, LearnsToReadWhatItsNeighborsSay) {
  if (!test::long_version()) GTEST_SKIP() << "takes minutes: set ESPALIER_TEST_ALL";
  write_repetitions(400);
  const std::string steps = "--train-iters 300 --lr-warmup-iters 20 --retro-add-retriever ";
  const Outcome outcome = bash(concat(
      "set -e; export OMP_WAIT_POLICY=passive; ", preprocess(), "espalier retro build ", flags(), steps, "--json; ",
      "espalier train retro ", flags(), steps, "--save with --save-interval 300; espalier train retro ", flags(), steps,
      "--load with --save off --save-interval 300 --eval-only true --retro-without-neighbors; espalier train retro ",
      flags(), "--train-iters 300 --lr-warmup-iters 20 --save plain --save-interval 300"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const double with = valid_loss("with"), off = valid_loss("off"), plain = valid_loss("plain");
  std::printf("validation: %.3f with neighbours, %.3f of the same without, %.3f of a GPT\n", with, off, plain);
  const double known = 31 * std::log(30.0) / 32;  // of 31 random numbers and the end of the text
  EXPECT_GT(plain, known - 0.01);
  EXPECT_GT(off, known - 0.01);
  EXPECT_LT(with, known - 0.05);
}

TEST_F(RetroCommand, TrainsTheSameInItsLayoutsAndGoesOnToTheSameBits) {
  write_repetitions(40);
  const std::string run = concat(flags(), "--train-iters 4 --retro-add-retriever --eval-iters 1 --num-threads 1 ");
  const std::string train = concat("espalier train retro ", run, "--save-interval 4 ");
  const std::string parity = test::long_version() ? "--steps 4 --layouts tp1,tp2,dp2zero1,dp2zero3; "
                                                  : "--steps 2 --layouts tp1,tp2,dp2zero3; ";
  const Outcome outcome =
      bash(concat("set -e; export OMP_WAIT_POLICY=passive; ", preprocess(), "espalier retro build ", run,
                  "2>/dev/null; espalier parity retro ", run, "--micro-batch-size 2 ", parity, train,
                  "--save straight; ", train, "--save stopped --exit-interval 2; ", train,
                  "--save stopped --load stopped; espalier checkpoint diff straight stopped; "
                  "espalier generate --load straight --prompt '1 2 3' --tokens-to-generate 4 --greedy"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  EXPECT_NE(outcome.output.find("bitwise equal"), std::string::npos) << outcome.output;
}

// The first chunk of a text stands in the database twice, and the second is found where the text goes on: chunks of
// documents of 31 numbers are four each, and those of the repetition come after all texts.
TEST_F(RetroCommand, ContinuesTextsWithTheirNeighbors) {
  make_small_run();
  const std::string texts = read_file(folder_ / "work/texts.jsonl");
  std::istringstream words(nlohmann::json::parse(texts.substr(0, texts.find('\n')))["text"].get<std::string>());
  std::string prompt, word;
  for (int at = 0; at < 16 && words >> word; ++at) prompt += concat(at == 0 ? "" : " ", word);
  const std::string generate = concat("espalier generate --load run --num-threads 1 --prompt '", prompt,
                                      "' --tokens-to-generate 9 --greedy --no-stop-at-eod --json ");
  const Outcome outcome = bash(concat(
      "set -e; export OMP_WAIT_POLICY=passive; exec 2>messages; ", generate, "; ", generate,
      "--no-retrieval; mv work elsewhere; ", generate, "--retro-project-dir elsewhere; echo '", prompt,
      "' >prompts.txt; espalier generate --load run --num-threads 1 --sample-input-file ",
      "prompts.txt --sample-output-file texts.out --tokens-to-generate 9 --greedy --no-stop-at-eod --retro-workdir ",
      "elsewhere; set +e; ", generate, "; echo $?; ", generate, "--retro-workdir elsewhere --no-retrieval; echo $?"));
  std::istringstream lines(outcome.output);
  std::vector<std::string> said;
  for (std::string line; std::getline(lines, line);) said.push_back(line);
  ASSERT_EQ(said.size(), 5u) << outcome.output << read_file(folder_ / "work/messages");
  const auto with = nlohmann::json::parse(said[0]), without = nlohmann::json::parse(said[1]);
  EXPECT_EQ(said[2], said[0]);
  ASSERT_EQ(with["neighbors"].size(), 3u);  // of 16 + 9 - 1 tokens that were read
  EXPECT_EQ(with["neighbors"][0], nlohmann::json({0, 160}));
  EXPECT_EQ(with["neighbors"][1], nlohmann::json({1, 161}));
  EXPECT_FALSE(without.contains("neighbors"));
  EXPECT_NE(with["logprobs"], without["logprobs"]);
  EXPECT_EQ(nlohmann::json::parse(read_file(folder_ / "work/texts.out"))["text"], with["text"]);
  EXPECT_EQ(said[3], "2");
  EXPECT_EQ(said[4], "2");
  const std::string messages = read_file(folder_ / "work/messages");
  for (const char* part : {"there are no chunks in 'work', which it was trained with: give --retro-workdir DIR",
                           "--retro-workdir and --retro-without-neighbors exclude each other"})
    EXPECT_NE(messages.find(part), std::string::npos) << part << "\n" << messages;
}

// What is scored is what is generated: the log-probability of a text is the sum of those of its tokens, which were
// written one after another.
TEST_F(RetroCommand, ScoresTextsWithTheirNeighbors) {
  make_small_run();
  const std::string generate =
      "espalier generate --load run --num-threads 1 --prompt '7 1 29 4 4 18 2 0 11 13' --tokens-to-generate 17 "
      "--greedy --no-stop-at-eod --json ";
  const std::string perplexity =
      "espalier eval --load run --num-threads 1 --tasks WIKITEXT103 --detokenizer none --data plain.txt --json ";
  const Outcome outcome = bash(
      concat("set -e; export OMP_WAIT_POLICY=passive; exec 2>messages; ",
             // The prompt's words and the text's become one request.
             "request() { printf '{\"context\": \"7 1 29 4 4 18 2 0 11 13\", \"continuation\": \"%s\"}\\n' \"$(cut -d "
             "'\"' -f 8)\"; }; ",
             generate, ">with; ", generate, "--no-retrieval >without; request <with >with.jsonl; ",
             "request <without >without.jsonl; cat with with.jsonl; espalier eval --load run --requests with.jsonl; ",
             "cat without; espalier eval --load run --requests without.jsonl --retro-without-neighbors; ",
             "printf %s \"$(cut -d '\"' -f 4 texts.jsonl | head -3 | paste -sd ' ')\" >plain.txt; ", perplexity,
             "| tr -d '\n'; echo; ", perplexity,
             "--retro-without-neighbors | tr -d '\n'; echo; set +e; mv work elsewhere; ", perplexity, "; echo $?; ",
             perplexity, "--retro-workdir elsewhere | tr -d '\n'; echo; espalier serve --load run --port 0; echo $?"));
  std::istringstream lines(outcome.output);
  std::vector<std::string> said;
  for (std::string line; std::getline(lines, line);) said.push_back(line);
  const std::string messages = read_file(folder_ / "work/messages");
  ASSERT_EQ(said.size(), 10u) << outcome.output << messages;
  // What ends a document is no part of a text, and so of no request.
  const auto sum_of = [](const std::string& generated, int count) {
    const auto logprobs = nlohmann::json::parse(generated)["logprobs"].get<std::vector<double>>();
    return std::accumulate(logprobs.begin(), logprobs.begin() + count, 0.0);
  };
  for (const size_t place : {size_t{0}, size_t{3}}) {  // with neighbours, and without
    const auto scored = nlohmann::json::parse(said[place == 0 ? 2 : 4]);
    ASSERT_GE(scored["tokens"], 8) << said[place];
    EXPECT_TRUE(scored["is_greedy"].get<bool>()) << said[place];
    EXPECT_NEAR(scored["loglikelihood"].get<double>(), sum_of(said[place], scored["tokens"].get<int>()), 1e-4);
  }
  EXPECT_NE(said[5], said[6]);
  EXPECT_EQ(said[8], said[5]);
  EXPECT_EQ(said[7], "2");
  EXPECT_EQ(said[9], "2");
  for (const char* part : {"with 2 neighbours of each chunk, from 'work'", "without neighbours, as the GPT",
                           "there are no chunks in 'work', which it was trained with: give --retro-workdir DIR",
                           "'run' holds a Retro that reads neighbours, which 'espalier serve' does not look up"})
    EXPECT_NE(messages.find(part), std::string::npos) << part << "\n" << messages;
}

// Upstream's program is run with a BERT's options; its examples use older names as well.
TEST_F(RetroCommand, BuildsByMegatronsLinesWhatItBuildsByItsOwn) {
  write_repetitions(20);
  const std::string bert =
      "espalier tools/retro/main.py --distributed-timeout-minutes 600 --tensor-model-parallel-size 1 "
      "--pipeline-model-parallel-size 1 --num-layers 24 --hidden-size 1024 --num-attention-heads 16 "
      "--micro-batch-size 1024 --global-batch-size 1024 --seq-length 512 --max-position-embeddings 512 --load bert "
      "--exit-on-missing-checkpoint --no-load-optim --data-path nothing --tokenizer-type BertWordPieceLowerCase "
      "--vocab-file bert.txt --split 98,2,0 --train-samples 64 --lr-decay-samples 60 --lr-warmup-samples 2 "
      "--lr 0.0001 --min-lr 1.0e-5 --weight-decay 1e-2 --clip-grad 1.0 --eval-interval 7 --eval-iters 9 --fp16 "
      "--DDP-impl local --no-data-sharding --bert-embedder-type megatron --output-bert-embeddings --vocab-size 31 "
      "--make-vocab-size-divisible-by 1 --retro-return-doc-ids --retro-bert-vocab-file bert.txt "
      "--retro-bert-tokenizer-type BertWordPieceLowerCase --retro-gpt-tokenizer-type NullTokenizer "
      "--retro-gpt-seq-length 32 --retro-gpt-chunk-length 8 --retro-gpt-global-batch-size 16 "
      "--retro-gpt-eval-interval 1000 --retro-gpt-eval-iters 1 --retro-gpt-split 90,10,0 --retro-gpt-seed 1234 "
      "--retro-gpt-data-path texts_text_document --retro-index-str IVF4_HNSW4,Flat --retro-workdir ";
  const Outcome outcome = bash(concat(
      "set -e; ", preprocess(), "espalier retro build ", flags(),
      "--train-iters 4 --retro-add-retriever --eval-iters 1 --retro-query-num-neighbors-save 7 "
      "--retro-index-str IVF4_HNSW4,Flat --retro-index-ntrain 64 --retro-query-nprobe 2 --retro-query-ef-search 4; ",
      bert,
      "new --retro-tasks build --retro-index-ntrain 64 --retro-query-ef-search 4 --retro-query-nprobe 2 "
      "--retro-query-num-neighbors-query 50 --retro-query-num-neighbors-save 7; ",
      bert, "old --retro-tasks db-build,index-build,pretraining-query-neighbors --retro-nchunks-sampled 64 ",
      "--retro-index-ty faiss-par-add --retro-ef-search 4 --retro-nprobe 2 --retro-nnbrs-query 50 ",
      "--retro-nnbrs-target 7 --retro-doc-block-size 10 --retro-bert-batch-size 8 --retro-bert-max-chunk-length 256; ",
      "for other in new old; do diff -r work $other; done; echo same"));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.output.find("same"), std::string::npos) << outcome.output << outcome.errors;
}

// A search of all lists is exact, whatever the string; one of few is not, and says so. Killed over and over, with
// another number of threads each time, it comes to the same files.
TEST_F(RetroCommand, FindsNeighborsByAnIndexString) {
  write_repetitions(40);
  const std::string build =
      concat("espalier retro build ", flags(), "--train-iters 4 --retro-add-retriever --eval-iters 1 ");
  const std::string lists = "--retro-index-str IVF6,Flat --retro-query-nprobe ";
  const Outcome outcome =
      bash(concat("set -e; ", preprocess(), build, "--retro-workdir exact; ", build, "--retro-workdir all ", lists,
                  "6; ", "for set in train valid; do cmp exact/neighbors/$set/block-00000.safetensors ",
                  "all/neighbors/$set/block-00000.safetensors; done; ", build, "--retro-workdir few ", lists,
                  "1 --json >few.json; set +e; ", "for at in 01 02 04 06 08 10 12 15 20; do timeout -s KILL 0.$at ",
                  build, "--retro-workdir killed ", lists, "1 --workers $((10#$at % 3 + 1)) 2>/dev/null; done; ", build,
                  "--retro-workdir killed ", lists, "1 && diff -r few killed && echo same"));
  EXPECT_NE(outcome.output.find("same"), std::string::npos) << outcome.output << outcome.errors;
  EXPECT_NE(outcome.errors.find("recall@20 of IVF6,Flat of 288 training rows, nprobe 6: 1.0000 over 100 chunks"),
            std::string::npos)
      << outcome.errors;
  const auto built = nlohmann::json::parse(read_file(folder_ / "work/few.json"));
  EXPECT_EQ(built["trained"]["index_string"], "IVF6,Flat");
  const double recall = built["neighbors"][0]["recall"].get<double>();
  EXPECT_GT(recall, 0.1);
  EXPECT_LT(recall, 1.0);
  // Another string, or none, is not what is there.
  for (const auto& [options, part] :
       {std::pair<const char*, const char*>{
            "--retro-index-str IVF7,Flat",
            "'few/index' has another trained index: index_string is \"IVF6,Flat\" there and \"IVF7,Flat\" now"},
        {"--retro-index-str IVF7,Flat --retro-tasks query-pretraining-neighbors",
         "'few/index' has a trained index IVF6,Flat, and --retro-index-str is IVF7,Flat; --retro-tasks index-build"},
        {"", "'few/index' has a trained index, IVF6,Flat, by which texts are continued too: give --retro-index-str"},
        {"--retro-index-str IVF6,Flat --retro-query-nprobe 2",
         "search is \"IVF6,Flat of 288 training rows, nprobe 1\""},
        {"--retro-index-str IVF6,PQ7", "--retro-index-str: index string 'IVF6,PQ7' does not work for vectors of 1,024"},
        {"--retro-workdir new --retro-index-str IVF4096_HNSW4,Flat",
         "--retro-index-str: index string 'IVF4096_HNSW4,Flat' needs 4,096 training rows or more, one for each "
         "centroid; the index has 288 rows. Use fewer lists, such as IVF7,Flat, or the exact search"}}) {
    const Outcome refused = bash(concat(build, "--retro-workdir few ", options));
    EXPECT_NE(refused.exit_code, 0) << options;
    EXPECT_NE(refused.errors.find(part), std::string::npos) << part << "\n" << refused.errors;
  }
}

TEST_F(RetroCommand, SaysWhatIsWrong) {
  write_repetitions(20);
  const std::string run = concat(flags(), "--train-iters 2 --retro-add-retriever ");
  const auto expect = [&](const std::string& command, const std::vector<const char*>& said) {
    const Outcome outcome = bash(command);
    EXPECT_NE(outcome.exit_code, 0) << command;
    for (const char* part : said) EXPECT_NE(outcome.errors.find(part), std::string::npos) << part << outcome.errors;
  };
  ASSERT_EQ(bash(preprocess()).exit_code, 0);
  expect("espalier train retro " + run, {"holds no chunks (no chunks.json); 'espalier retro build'"});
  ASSERT_EQ(bash("espalier retro build --retro-tasks db-build,index-build " + run).exit_code, 0);
  expect("espalier train retro " + run, {"holds no neighbours; 'espalier retro build'"});
  ASSERT_EQ(bash("espalier retro build " + run).exit_code, 0);
  // An index of other vectors, and one of as many chunks of other texts.
  expect(concat("espalier retro build ", run, "--retro-index-nfeats 512"),
         {"the index 'work/index' is of other chunks or vectors: it was made from 'ngrams-1024', 'chunks ",
          "expected 'ngrams-512', 'chunks ", "--overwrite makes it anew"});
  const std::string reversed =
      "espalier preprocess --input reversed.jsonl --output-prefix reversed --tokenizer-type "
      "NullTokenizer --vocab-size 31 --append-eod";
  const Outcome swapped = bash(concat(
      "set -e; tac texts.jsonl >reversed.jsonl; ", reversed, "; espalier retro build ", run,
      "--data-path reversed_text_document --retro-workdir other --retro-tasks db-build,index-build; cp -r work mixed; ",
      "rm -r mixed/index; cp -r other/index mixed/index"));
  ASSERT_EQ(swapped.exit_code, 0) << swapped.errors;
  expect(concat("espalier retro build ", run, "--retro-workdir mixed"),
         {"the index 'mixed/index' is of other chunks or vectors"});
  expect(concat("espalier train retro ", run, "--seed 7"),
         {"neighbours of other samples than those of this run", "the seed was 1234 and is 7"});
  expect(concat("espalier train retro ", run, "--retro-num-neighbors 21 --retro-chunk-length 16"),
         {"--retro-chunk-length 16: the chunks of 'work' have 8 tokens",
          "--retro-num-neighbors 21: the chunks of 'work' have 20 neighbours each; use 20 or fewer"});
  expect(concat("espalier train retro ", run,
                "--num-layers 5 --seq-length 30 --pipeline-model-parallel-size 2 --context-parallel-size 2 "
                "--recompute-granularity full --objective prefix --reset-position-ids --window-size 8"),
         {"--num-layers 5 (command line) has no layer that attends to neighbours", "use 6 or more",
          "--seq-length 30 (command line) is not a multiple of --retro-chunk-length 8", "use 24 or 32",
          "--pipeline-model-parallel-size 2", "--context-parallel-size 2", "use --tensor-model-parallel-size",
          "--recompute-granularity full does not work for a Retro", "--objective prefix", "--reset-position-ids",
          "--window-size 8"});
  expect(concat("espalier retro build ", run, "--retro-tasks db --workers 2 --memory much"),
         {"--retro-tasks db: expected build, or some of", "--memory much"});
  expect(concat("espalier train gpt ", run), {"--retro-add-retriever", "use 'espalier train retro'"});
}

}  // namespace retro_command_test
}  // namespace espalier
