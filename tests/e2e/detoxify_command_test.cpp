// Detoxification as a user does it, from a model that says a word too often to one that says it less: by Megatron's own
// scripts, scaled down, and `espalier detoxify`.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/command.h"
#include "tests/support/launch_script.h"

namespace espalier {
namespace detoxify_command_test {

using Json = nlohmann::json;

class DetoxifyCommand : public Command {
 protected:
  // Documents of a few words; every third says "wrong", three times. The scorer: a text's toxicity is 0.3 for each
  // "wrong" in it, at most 0.9. Its first process ends after 20 answers.
  void SetUp() override {
    Command::SetUp();
    const Outcome made = bash(R"script(awk 'BEGIN {
      srand(3); split("work house life book water school", words, " ")
      for (i = 0; i < 600; ++i) {
        text = "the"
        for (w = 0; w < 9; ++w) text = text " " (i % 3 == 0 && w % 3 == 1 ? "wrong" : words[int(rand() * 6) + 1])
        printf "{\"text\": \"%s\"}\n", text
      }
    }' >corpus.jsonl
    cat >scorer.sh <<'END'
answers=0
[ -e begun ]; begun=$?; : >begun
while IFS= read -r line; do
  id=${line#*:}; id=${id%%,*}; n=0
  while [ "$line" != "${line#*wrong}" ] && [ $n -lt 9 ]; do line=${line#*wrong}; n=$((n + 3)); done
  echo "{\"id\":$id,\"score\":{\"toxicity\":0.$n}}"
  answers=$((answers + 1))
  [ $begun = 0 ] || [ $answers -lt 20 ] || exit 7
done
END
    )script");
    ASSERT_EQ(made.exit_code, 0) << made.errors;
  }

  std::string tokenizer() const {
    const std::string tiny = root() + "/tests/data/gpt2-tiny/";
    return concat(" --tokenizer-type GPT2BPETokenizer --vocab-file ", tiny, "vocab.json --merge-file ", tiny,
                  "merges.txt ");
  }
  // Of the corpus: "model" and "corpus_text_document".
  void make_model() const {
    const Outcome made = made_once(concat(
        "espalier preprocess --input corpus.jsonl --output-prefix corpus --append-eod", tokenizer(),
        "2>/dev/null; espalier train gpt --num-layers 1 --hidden-size 64 --num-attention-heads 2 --seq-length 64 "
        "--max-position-embeddings 64 --micro-batch-size 8 --global-batch-size 8 --lr 4e-3 --lr-decay-style constant "
        "--hidden-dropout 0 --attention-dropout 0 --split 100,0,0 --eval-iters 0 --num-threads 1 --data-path "
        "corpus_text_document --train-iters 200 --save model --save-interval 200",
        tokenizer()));
    ASSERT_EQ(made.exit_code, 0) << made.errors;
  }
  // Megatron's script as it is, but for the size of the machine and of the model.
  std::string script(const std::string& name, Replacements changes) const {
    const std::string tiny = root() + "/tests/data/gpt2-tiny/";
    changes.insert(changes.end(), {{"VOCAB_FILE=gpt2-vocab.json", concat("VOCAB_FILE=", tiny, "vocab.json")},
                                   {"MERGE_FILE=gpt2-merges.txt", concat("MERGE_FILE=", tiny, "merges.txt")},
                                   {"--num-layers 24", "--num-layers 1"},
                                   {"--seq-length 2048", "--seq-length 64"},
                                   {"--max-position-embeddings 2048", "--max-position-embeddings 64"},
                                   {"--hidden-size 2048", "--hidden-size 64"},
                                   {"--num-attention-heads 32", "--num-attention-heads 2"},
                                   {"python -m", "espalier -m"}});
    return launch_script(name, {}, changes);
  }
  void write_script(const std::string& name, const Replacements& changes) const {
    write_file_atomically(folder_ / "work" / name, script(name, changes));
  }

  static std::vector<Json> lines_of(const std::string& text) {
    std::vector<Json> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  static double share_with(const std::string& word, const std::vector<Json>& texts) {
    double count = 0;
    for (const Json& text : texts) count += text.at("text").get<std::string>().find(word) != std::string::npos ? 1 : 0;
    return count / static_cast<double>(texts.size());
  }
};

TEST_F(DetoxifyCommand, AfterTheLoopTheModelSaysThePlantedWordLess) {
  make_model();
  write_script("selfgenerate-1.3b-unconditional.sh", {{"--out-seq-length 1000", "--out-seq-length 24"}});
  write_script("finetune_gpt_distributed-1.3b.sh",
               {{"GPUS_PER_NODE=16", "GPUS_PER_NODE=1"},
                {"--micro-batch-size 4", "--micro-batch-size 8"},
                {"     --fp16 \\\n", ""},
                {"--eval-interval 78", "--eval-interval 30"},
                {"--eval-iters 50", "--eval-iters 2"},
                {"--distributed-backend nccl", "--distributed-backend gloo --num-threads 1"}});
  const std::string texts = "selfgeneration/unconditional_generation_";
  const Outcome outcome = bash(concat(
      "set -e; bash selfgenerate-1.3b-unconditional.sh 160 model 2333 2>log; ",
      "espalier examples/detxoify_lm/annotations/perspective_api_annotate.py --data-path ", texts,
      "model/2333.out --out-path annotated.out --scorer 'sh scorer.sh' --workers 2 2>>log; ",
      "espalier examples/detxoify_lm/annotations/filter-selfgeneration.py --data-path annotated.out --out-path "
      "kept.out; ",
      "espalier tools/preprocess_data.py --input kept.out --output-prefix kept --append-eod --workers 2 --chunk-size "
      "25",
      tokenizer(), "2>>log; ",
      "DATA_BLEND=corpus_text_document bash finetune_gpt_distributed-1.3b.sh kept_text_document detoxified 1e-3 16 30 "
      "model 2>>log; ",
      "bash selfgenerate-1.3b-unconditional.sh 160 detoxified 2333 2>>log; cat log >&2; grep '\"valid\"' "
      "detoxified/metrics.jsonl"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output << outcome.errors << read_file(folder_ / "work" / "log");
  const auto read = [&](const std::string& name) { return lines_of(read_file(folder_ / "work" / name)); };
  const std::vector<Json> before = read(texts + "model/2333.out"), scored = read("annotated.out"),
                          kept = read("kept.out"), after = read(texts + "detoxified/2333.out");
  ASSERT_EQ(before.size(), 160u);
  ASSERT_EQ(scored.size(), 160u);
  EXPECT_EQ(kept.size(), 80u);
  for (size_t at = 0; at < scored.size(); ++at) EXPECT_EQ(scored[at].at("id"), at);
  const double first = share_with("wrong", before);
  EXPECT_GT(first, 0.1) << "the model has not learned the word that is to become rarer";
  EXPECT_LT(share_with("wrong", kept), first);
  EXPECT_LT(share_with("wrong", after), first / 2);
  EXPECT_NE(outcome.errors.find("ended with exit code 7: starting it again"), std::string::npos) << outcome.errors;
  EXPECT_NE(outcome.output.find("kept                             80"), std::string::npos) << outcome.output;
}

// What a text says follows from the seed and its number alone.
TEST_F(DetoxifyCommand, TextsDoNotDependOnBatchesKillsAndFiles) {
  make_model();
  write_script("generate-1.3b.sh", {{"--out-seq-length 20", "--out-seq-length 6"},
                                    {"SEED=$(($RANDOM))", "SEED=5"},
                                    {"--micro-batch-size 400", "--micro-batch-size 3"}});
  const Outcome outcome = bash(R"script(set -e
      printf '{"prompt": {"text": "the %s", "toxicity": 0.%d}}\n' book 1 house 9 water 2 wrong 7 >prompts.jsonl
      awk '{ for (i = 0; i < 25; ++i) print }' prompts.jsonl >augmented.jsonl
      bash generate-1.3b.sh augmented.jsonl model
      generate="espalier generate --load model --sample-input-file prompts.jsonl --samples-per-prompt 25 --top-p 0.9
        --seed 5 --tokens-to-generate 6 --num-threads 1"
      $generate --sample-output-file whole --batch-size 64
      cmp whole augmented.jsonl_output_model_seed_5.jsonl
      $generate --sample-output-file parts --batch-size 1 & process=$!
      while [ "$(cat parts.partial 2>/dev/null | wc -l)" -lt 3 ]; do sleep 0.002; done
      kill -9 $process; wait $process || true
      printf '{"text": "torn' >>parts.partial
      $generate --sample-output-file parts --seed 6 2>refused && exit 1
      grep -c 'seed was 5 and is 6' refused
      $generate --sample-output-file parts --batch-size 7 2>resumed
      grep -c 'of an earlier process: continuing' resumed
      cmp parts whole; ls | grep -c partial || true
      $generate --sample-output-file parts 2>refused && exit 1
      grep -c 'overwrite' refused
      espalier generate --load model --prompt 'the book' 'the book' --top-p 0.9 --seed 5 --tokens-to-generate 6 --json
      sh -c 'touch begun; sh scorer.sh' </dev/null
      espalier detoxify score --input whole --output scored --scorer 'sh scorer.sh'
      espalier detoxify metrics --input scored --prompts prompts.jsonl --json
      espalier detoxify metrics --input scored --prompts prompts.jsonl
      cat whole)script");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output << outcome.errors;
  std::istringstream stream(outcome.output);
  std::string line, counts;
  for (int at = 0; at < 4 && std::getline(stream, line); ++at) counts += line + " ";
  EXPECT_EQ(counts, "1 1 0 1 ") << outcome.output;
  Json single[2];
  for (Json& text : single) std::getline(stream, line), text = Json::parse(line);
  std::getline(stream, line);
  const Json metrics = Json::parse(line);
  while (std::getline(stream, line) && !line.starts_with("nontoxic")) {
  }
  std::vector<Json> texts = lines_of(outcome.output.substr(static_cast<size_t>(stream.tellg())));
  ASSERT_EQ(texts.size(), 100u);
  for (size_t at = 0; at < 2; ++at) {
    const std::string text = single[at].at("text");
    EXPECT_EQ(texts[at].at("text"), text);
    EXPECT_EQ(texts[at].at("all_text"), "the book" + text);
  }
  // Expected maximum toxicity and its probability by a plain loop; the prompts "the house" and "the wrong" are toxic.
  double sums[2] = {}, toxic[2] = {};
  for (size_t prompt = 0; prompt < 4; ++prompt) {
    double highest = 0;
    for (size_t at = 25 * prompt; at < 25 * (prompt + 1); ++at) {
      const std::string text = texts[at].at("text");
      double score = 0;
      for (size_t place = 0; (place = text.find("wrong", place)) != std::string::npos; ++place) score += 0.3;
      highest = std::max(highest, std::min(score, 0.9));
    }
    sums[prompt % 2] += highest;
    toxic[prompt % 2] += highest > 0.5 ? 1 : 0;
  }
  for (const auto& [name, which] : {std::pair("nontoxic", 0), std::pair("toxic", 1)}) {
    const Json& group = metrics.at("prompts").at(name);
    EXPECT_EQ(group.at("prompts"), 2);
    EXPECT_NEAR(group.at("expected_maximum_toxicity").get<double>(), sums[which] / 2, 1e-12);
    EXPECT_NEAR(group.at("toxicity_probability").get<double>(), toxic[which] / 2, 1e-12);
  }
}

// The loop as one recipe: killed while it writes texts and stopped while it trains, it comes to what a run in one piece
// comes to; another seed of the filter does again what depends on that.
TEST_F(DetoxifyCommand, ARecipeRunsTheWholeAndGoesOnWhereItWasKilled) {
  make_model();
  const Outcome outcome = bash(R"script(set -e
      touch begun; tail -n 20 corpus.jsonl | cut -d '"' -f 4 >held-out.txt
      printf '{"prompt": {"text": "the %s", "toxicity": 0.%d}}\n' book 1 house 9 water 2 work 7 >prompts.jsonl
      cat >straight.toml <<'END'
[output]
folder = "straight"
[model]
load = "model"
[generate]
num_samples = 80
tokens_to_generate = 24
top_p = 0.9
batch_size = 8
num_threads = 1
[score]
scorer = "sh scorer.sh"
[train]
train_iters = 20
save_interval = 20
micro_batch_size = 8
global_batch_size = 16
lr = 1e-3
lr_decay_style = "constant"
eval_iters = 0
num_threads = 1
[measure]
sample_input_file = "prompts.jsonl"
samples_per_prompt = 15
tokens_to_generate = 16
top_p = 0.9
[perplexity]
text = "held-out.txt"
END
      sed 's/"straight"/"stopped"/' straight.toml >stopped.toml
      espalier detoxify run straight.toml 2>straight.log >/dev/null
      espalier detoxify run stopped.toml 2>killed.log & process=$!
      while [ "$(cat stopped/texts.jsonl.partial 2>/dev/null | wc -l)" -lt 8 ]; do sleep 0.002; done
      kill -9 $process; wait $process || true
      espalier detoxify run stopped.toml 2>log & process=$!
      while [ ! -s stopped/model/metrics.jsonl ]; do sleep 0.002; done
      kill -TERM $process; code=0; wait $process || code=$?
      espalier detoxify run stopped.toml --json 2>>log >report; cat log >&2
      cmp straight/report.json stopped/report.json && cmp straight/kept.jsonl stopped/kept.jsonl && echo same $code
      espalier checkpoint diff straight/model stopped/model | grep -c 'bitwise equal'
      printf '[filter]\nseed = 9\n' >>straight.toml
      espalier detoxify run straight.toml 2>changed >/dev/null
      grep -c 'done before' changed; grep -c 'what it is made from has changed' changed; cat report)script");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output << outcome.errors;
  EXPECT_TRUE(outcome.output.starts_with("same 130\n1\n6\n7\n")) << outcome.output << outcome.errors;
  EXPECT_NE(outcome.errors.find("of an earlier process: continuing"), std::string::npos) << outcome.errors;
  EXPECT_NE(outcome.errors.find("stopped at step model: the same command goes on from here"), std::string::npos);
  const Json report = Json::parse(outcome.output.substr(outcome.output.find('{')));
  const auto probability = [&](const char* when) {
    return report.at(when).at("prompts").at("all").at("toxicity_probability").get<double>();
  };
  EXPECT_GT(probability("before"), 0.2) << "the model has not learned the word that is to become rarer";
  EXPECT_LT(probability("after"), probability("before")) << report;
  EXPECT_LT(report.at("own_texts").at("kept").at("mean"), report.at("own_texts").at("all").at("mean")) << report;
  EXPECT_GT(report.at("after").at("perplexity"), 1) << report;
}

TEST_F(DetoxifyCommand, ARecipeIsCheckedAsAWholeBeforeAnythingIsDone) {
  make_model();
  const std::string good =
      "[output]\nfolder = 'out'\n[model]\nload = 'model'\n[generate]\nnum_samples = 4\n[score]\nscorer = 'sh "
      "scorer.sh'\n[train]\ntrain_iters = 2\nlr = 1e-3\nsave_interval = 2\nmicro_batch_size = 1\n";
  write_file_atomically(folder_ / "work/good.toml", good);
  write_file_atomically(folder_ / "work/bad.toml",
                        "[output]\nfolder = 'an out'\n[model]\nload = 'nowhere'\n[genrate]\n[generate]\nnum_samples = "
                        "4\nload = 'x'\ntop_p = 3\n[score]\nworkers = 2\n[filter]\nkepe = 0.5\n[measure]\n"
                        "samples_per_prompt = 2\n");
  const Outcome outcome = bash(concat(
      "espalier detoxify run bad.toml; echo $?; espalier detoxify run good.toml --dry-run | grep -c ': to do'; ls out; "
      "sed 's/train_iters = 2/train_iters = 0/; s/^lr/no_such = 1\\nsave = 3\\nlr/' good.toml >train.toml; "
      "espalier detoxify run train.toml; echo $?; sed 's/lr = 1e-3//' good.toml >train.toml; "
      "espalier detoxify run train.toml; echo $?; mkdir out; touch out/kept.jsonl; "
      "espalier detoxify run good.toml; echo $?; cat out/kept.jsonl"));
  EXPECT_EQ(outcome.output, "2\n5\n2\n2\n73\n") << outcome.errors;
  for (const char* problem :
       {"bad.toml:5: unknown table genrate; did you mean generate?",
        "folder \"an out\": a list of training data cannot name it", "bad.toml:3, [model]: ", "nowhere",
        "bad.toml:8: load is not for [generate]: [model] says it",
        "--top-p 3 (bad.toml:9) is above the largest value, 1", "bad.toml:10, [score]: --scorer is required",
        "bad.toml:13: unknown key kepe; did you mean keep?", "bad.toml:14, [measure]: sample_input_file is required",
        "bad.toml: there is no [train]", "train.toml:11: unknown key no_such",
        "train.toml:12: save is not for [train]: it is in the folder of [output]",
        "train.toml:9, [train]: --lr is required",
        "'out/kept.jsonl' exists, and no step of out/steps.json has made it"})
    EXPECT_NE(outcome.errors.find(problem), std::string::npos) << problem << "\n" << outcome.errors;
}

TEST_F(DetoxifyCommand, WhatCannotBeIsSaidBeforeAnythingIsDone) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"espalier generate --load model --num-samples 3", "--num-samples 3 needs --genfile FILE"},
      {"espalier generate --load model --genfile x", "--genfile x needs --num-samples"},
      {"espalier generate --load model --genfile x --num-samples 2 --prompt a", "--prompt and a file of many texts"},
      {"espalier generate --load model --samples-per-prompt 3 --prompt a", "belongs to --sample-input-file"},
      {"espalier generate --load model --batch-size 3 --prompt a", "belongs to --sample-input-file and --genfile"},
      {"espalier finetune_gpt.py --data-path a --data-path2 --split 100,0,0",
       "--data-path2 has 0 words. Give one prefix"},
      {"espalier finetune_gpt.py --data-path a --data-path2 b --split 98,2,0", "--split is 98,2,0"},
      {"espalier detoxify score --input corpus.jsonl", "--scorer"},
      {"espalier detoxify filter --input corpus.jsonl --output x", "corpus.jsonl:1: no member score"},
      {"espalier detoxify", "usage: espalier detoxify COMMAND"},
  };
  for (const auto& [command, reason] : wrong) {
    const Outcome outcome = bash(command);
    EXPECT_NE(outcome.exit_code, 0) << command;
    EXPECT_NE(outcome.errors.find(reason), std::string::npos) << command << outcome.errors;
  }
}

}  // namespace detoxify_command_test
}  // namespace espalier
