// `espalier data who` and `data where`: what they say of a run, against the bytes of its token file and one another.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/format.h"
#include "tests/support/command.h"

namespace espalier {
namespace data_who_command_test {

using Json = nlohmann::json;

class DataWhoCommand : public Command {
 protected:
  std::string data(const std::string& name) const { return root() + "/tests/data/" + name; }
  // A batch of 4, 8 and then 12; steps 3 and 4 are skipped.
  std::string train(const std::string& more) const {
    return concat(
        "espalier train gpt --num-layers 1 --hidden-size 16 --num-attention-heads 2 --seq-length 33 "
        "--max-position-embeddings 33 --micro-batch-size 2 --global-batch-size 12 --rampup-batch-size 4 4 40 "
        "--lr 1e-3 --lr-decay-style constant --split 80,20,0 --eval-iters 1 --num-threads 1 --log-level error --seed 5 "
        "--train-samples 900 --exit-interval 8 --save run --save-interval 8 --skip-train-iteration-range 3-4 "
        "--vocab-file ",
        data("gpt2-tiny/vocab.json"), " --merge-file ", data("gpt2-tiny/merges.txt"), " ", more, " ");
  }
  static std::vector<Json> lines(const std::string& output) {
    std::vector<Json> all;
    std::istringstream stream(output);
    for (std::string line; std::getline(stream, line);) all.push_back(Json::parse(line));
    return all;
  }
  // The uint16 at `byte` of a .bin.
  static std::vector<int64_t> ids_at(const std::string& bytes, int64_t byte, int64_t count) {
    std::vector<int64_t> ids;
    for (int64_t at = byte; at < byte + 2 * count; at += 2)
      ids.push_back(static_cast<uint8_t>(bytes[static_cast<size_t>(at)]) +
                    256 * static_cast<uint8_t>(bytes[static_cast<size_t>(at) + 1]));
    return ids;
  }
};

// 900 samples of a set of 600: two epochs. Every step of the run, those to come too.
TEST_F(DataWhoCommand, NamesThePiecesOfEveryStepAndWhereFindsThemAgain) {
  const std::string set = data("owt-20_text_document");
  ASSERT_EQ(bash(train("--data-path " + set)).exit_code, 0);
  const Outcome ids =
      bash(concat("espalier data sample --data-path ", set, " --split 80,20,0 --seq-length 33 --seed 5 ",
                  "--num-samples 900,12,12 --first 0 --count 900 --json"));
  ASSERT_EQ(ids.exit_code, 0) << ids.errors;
  const std::vector<Json> samples = lines(ids.output);
  const std::string bin = read_file(set + ".bin");
  const Outcome outcome =
      bash("for step in $(seq 1 79); do espalier data who --run run --step $step --json || exit; done");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  std::map<int64_t, std::vector<Json>> of_document;
  std::map<int64_t, int64_t> size_of_step;
  int64_t number = 0;
  for (const Json& who : lines(outcome.output)) {
    EXPECT_EQ(who["sample"], number) << who;
    std::vector<int64_t> all;
    for (const Json& piece : who["pieces"]) {
      EXPECT_EQ(piece["at"], all.size());
      for (const int64_t id : ids_at(bin, piece["byte"], piece["length"])) all.push_back(id);
      of_document[piece["document"]].push_back({{"step", who["step"]},
                                                {"sample", number},
                                                {"micro_batch", who["micro_batch"]},
                                                {"row", who["row"]},
                                                {"offset", piece["offset"]},
                                                {"length", piece["length"]},
                                                {"at", piece["at"]}});
    }
    EXPECT_EQ(Json(all), samples[static_cast<size_t>(number)]["ids"]) << who;
    const int64_t in_step = size_of_step[who["step"]]++;
    EXPECT_EQ(who["micro_batch"], in_step / 2);
    EXPECT_EQ(who["row"], in_step % 2);
    EXPECT_EQ(who["ranks"], Json::array({0}));
    ++number;
  }
  const std::vector<int64_t> ramp = {4, 4, 4, 4, 4, 8, 8, 8, 12};  // 4 below 20 samples, 8 below 40
  for (size_t step = 1; step <= ramp.size(); ++step)
    EXPECT_EQ(size_of_step[static_cast<int64_t>(step)], ramp[step - 1]) << step;
  for (const int64_t document : {0, 7, 15}) {
    const Outcome where = bash(concat("espalier data where --run run --json --document ", document));
    ASSERT_EQ(where.exit_code, 0) << where.errors;
    std::vector<Json> found;
    for (Json one : lines(where.output)) {
      const int64_t step = one["step"];
      EXPECT_EQ(one["fate"], step > 8 ? "to come" : step == 3 || step == 4 ? "passed over" : "trained") << one;
      for (const char* key : {"replica", "ranks", "fate", "file", "document", "sequence"}) one.erase(key);
      found.push_back(one);
    }
    EXPECT_EQ(Json(found), Json(of_document[document])) << document;
  }
}

TEST_F(DataWhoCommand, TellsTheLayoutOfTheStepAndTheTextOfItsPieces) {
  const std::string set = data("owt-20_text_document");
  ASSERT_EQ(bash(train("--data-path " + set)).exit_code, 0);
  ASSERT_EQ(bash("espalier launch --nproc-per-node 2 " +
                 train("--load run --micro-batch-size 1 --data-path " + set).substr(std::string("espalier ").size()))
                .exit_code,
            0);
  const Outcome first = bash("espalier data who --run run --step 8 --json");
  EXPECT_NE(first.errors.find("their hash as recorded; options of run/step_00000008/manifest.json, layout tp1pp1dp1"),
            std::string::npos)
      << first.errors;
  EXPECT_EQ(lines(first.output)[3]["micro_batch"], 1);
  for (const int64_t step : {16, 17}) {
    const Outcome second = bash(concat("espalier data who --run run/step_00000016/ --json --text --step ", step));
    ASSERT_EQ(second.exit_code, 0) << second.errors;
    const std::vector<Json> who = lines(second.output);
    EXPECT_EQ(who[3]["micro_batch"], 1);
    EXPECT_EQ(who[3]["replica"], 1);
    EXPECT_EQ(who[3]["ranks"], Json::array({1}));
    const std::string text = who[3]["pieces"][0]["text"];
    EXPECT_NE(read_file(data("owt-20.jsonl")).find(text.substr(1, 12)), std::string::npos) << text;
  }
  const Outcome plain = bash("espalier data who --run run --step 16");
  EXPECT_NE(plain.output.find("replica 1 (rank 1), micro-batch 1, row 0; number "), std::string::npos) << plain.output;
}

// The page of runs shows the same texts, and the plan of the run.
TEST_F(DataWhoCommand, ThePageShowsTheTextsOfAStepAndThePlan) {
  ASSERT_EQ(bash(train("--data-path " + data("owt-20_text_document"))).exit_code, 0);
  const Outcome outcome = bash(R"(
    espalier runs serve run >address 2>messages & server=$!
    for attempt in {1..100}; do [ -s address ] && break; sleep 0.1; done
    address=$(<address) port=${address#http://127.0.0.1:} secret=/${port#*/} port=${port%%/*}
    get() {
      exec 3<>"/dev/tcp/127.0.0.1/$port"
      printf 'GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' "$secret$1" >&3
      sed '1,/^\r$/d' <&3
    }
    get api/runs >runs.json
    id=$(grep -o '"id":"[0-9a-f]*"' runs.json | head -1 | cut -d'"' -f4)
    get "api/texts?id=$id&step=5" >texts; get "api/plan?id=$id" >plan; get "api/texts?id=$id&step=80" >beyond
    kill -INT $server; wait $server
    espalier data who --run run --step 5 --text --json >who)");
  const auto file = [&](const char* name) { return read_file(folder_ / "work" / name); };
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors << file("messages");
  const Json texts = Json::parse(file("texts"));
  EXPECT_EQ(texts["samples"], Json(lines(file("who"))));
  EXPECT_EQ(texts["count"], 4);
  EXPECT_EQ(texts["fate"], "trained");
  EXPECT_EQ(texts["as_recorded"], true);
  EXPECT_EQ(file("plan").rfind("<svg", 0), 0U) << file("plan").substr(0, 300);
  EXPECT_NE(file("beyond").find("has 79 steps"), std::string::npos) << file("beyond");
}

TEST_F(DataWhoCommand, SaysWhereDataAreNotThoseOfTheStep) {
  ASSERT_EQ(bash(concat("for kind in bin idx; do cp ", data("owt-20_text_document"), ".$kind set.$kind; done; ",
                        train("--data-path set")))
                .exit_code,
            0);
  const Outcome moved = bash("mkdir new; mv set.* new; espalier data who --run run --step 2 -- --data-path new/set");
  EXPECT_EQ(moved.exit_code, 0) << moved.errors;
  EXPECT_NE(moved.errors.find("hash as recorded"), std::string::npos) << moved.errors;
  const Outcome gone = bash("espalier data who --run run --step 2");
  EXPECT_EQ(gone.exit_code, 2) << gone.errors;
  const Outcome other = bash("espalier data who --run run --step 2 -- --data-path new/set --seed 6");
  EXPECT_EQ(other.exit_code, 65);
  EXPECT_NE(other.errors.find("the sample hash in the record of step 2 is another"), std::string::npos) << other.errors;
  const Outcome where = bash("espalier data where --run run --document 3 -- --data-path new/set --seed 6");
  EXPECT_EQ(where.exit_code, 65);
  EXPECT_NE(where.errors.find("seed"), std::string::npos) << where.errors;
}

TEST_F(DataWhoCommand, RefusesWhatIsNotThere) {
  ASSERT_EQ(bash(train("--data-path " + data("owt-20_text_document"))).exit_code, 0);
  const Outcome outcome = bash(
      "espalier data who --run none --step 1; echo $?; espalier data who --run run --step 80; echo $?; "
      "espalier data where --run run --document 20; echo $?; espalier data where --run run --file b --document 1; "
      "echo $?; espalier data where --run run --document 17");
  EXPECT_EQ(outcome.output, "66\n2\n2\n2\n") << outcome.errors;
  for (const char* part : {"'none' does not exist. Give the run's --save folder", "has 79 steps, numbered from 1",
                           "has 20 documents, numbered from 0", "--file b: the run does not read it. It reads ",
                           "never seen; the training set reads documents 0 to 15"})
    EXPECT_NE(outcome.errors.find(part), std::string::npos) << part << " in\n" << outcome.errors;
}

TEST_F(DataWhoCommand, RefusesFamiliesWhoseSamplesAreNotTraced) {
  const Outcome outcome = bash(concat(
      "mkdir run; printf 'num_layers = 1\\nhidden_size = 16\\nnum_attention_heads = 2\\nseq_length = 33\\n",
      "max_position_embeddings = 33\\nmicro_batch_size = 2\\ntrain_iters = 2\\nlr = 1e-3\\ndata_path = [\"d\"]\\n",
      "vocab_file = \"v.txt\"\\n' >run/config.toml; echo espalier train ict >run/command.txt; ",
      "espalier data who --run run --step 1"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.errors.find("whose samples are not traced to their documents; those of `train gpt`, `train bert` "
                                "and `train t5` are"),
            std::string::npos)
      << outcome.errors;
}

// The steps that `curate forget --runs` names, against what `data who` says of every step.
TEST_F(DataWhoCommand, ForgetNamesTheStepsThatReadTheDocuments) {
  write_file_atomically(folder_ / "work/recipe.toml",
                        concat("[output]\nfolder = \"mix\"\ntokenizer = \"", data("gpt2-tiny/vocab.json"),
                               "\"\n[[source]]\nname = \"owt\"\nfiles = [\"", data("owt-20.jsonl"), "\"]\n"));
  ASSERT_EQ(bash("espalier curate recipe.toml").exit_code, 0);
  const std::string mix = train("--train-samples 100 --data-path mix/documents_text_document");
  ASSERT_EQ(bash(mix).exit_code, 0);
  ASSERT_EQ(bash(train("--save other --data-path " + data("owt-20_text_document"))).exit_code, 0);
  const Outcome who = bash("for step in $(seq 1 12); do espalier data who --run run --step $step --json || exit; done");
  ASSERT_EQ(who.exit_code, 0) << who.errors;
  std::map<int64_t, std::set<int64_t>> steps_of;  // each document
  int64_t num_samples = 0;
  for (const Json& sample : lines(who.output)) {
    ++num_samples;
    for (const Json& piece : sample["pieces"]) steps_of[piece["document"]].insert(sample["step"].get<int64_t>());
  }
  EXPECT_EQ(num_samples, 92);  // twelve steps are all that the run has
  EXPECT_NE(bash("espalier data who --run run --step 13").exit_code, 0);
  const auto expect_steps = [&](const std::string& output) {
    const Json readings = Json::parse(output).at("runs");
    ASSERT_EQ(readings.size(), 6u);
    for (const Json& reading : readings) {
      std::set<int64_t> steps;
      for (const Json& step : reading.at("steps")) {
        const int64_t number = step.at("step");
        steps.insert(number);
        EXPECT_EQ(step.at("fate"), number > 8 ? "to come" : number == 3 || number == 4 ? "passed over" : "trained");
      }
      // The last document is of the 20 % for validation; the other run has read other files.
      const bool is_read = reading.at("run") == "run" && reading.at("document") != 19;
      EXPECT_EQ(steps, is_read ? steps_of[reading.at("document")] : std::set<int64_t>{}) << reading;
      EXPECT_EQ(steps.empty(), !is_read) << reading;
    }
  };
  const std::string forget = "espalier curate forget mix --document 2 7 19 --runs run other --json";
  const Outcome look = bash(forget + " --dry-run");
  ASSERT_EQ(look.exit_code, 0) << look.errors;
  expect_steps(look.output);
  EXPECT_NE(look.errors.find("other: document 7: in no step"), std::string::npos) << look.errors;
  // Removed in earnest, the same is told of the token files as they were.
  const Outcome done = bash(forget);
  ASSERT_EQ(done.exit_code, 0) << done.errors;
  expect_steps(done.output);
  EXPECT_EQ(Json::parse(done.output).at("removed").size(), 3u);
  // The run sees that its data are no longer those it began with.
  const Outcome resumed = bash(mix + "--load run");
  EXPECT_NE(resumed.errors.find("its documents were 0 to 16"), std::string::npos) << resumed.errors;
}

}  // namespace data_who_command_test
}  // namespace espalier
