// espalier runs, version and doctor as users meet them.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/console.h"
#include "base/format.h"
#include "tests/support/command.h"

namespace espalier {
namespace {

using Json = nlohmann::json;

class Runs : public Command {
 protected:
  void SetUp() override {
    Command::SetUp();
    write_run("first", 50, 0.001, "end", "all steps done");
    write_run("second", 30, 0.002, "stop", "SIGTERM");
  }
  // A run whose loss is 10 / step.
  void write_run(const std::string& name, int steps, double lr, const std::string& ending,
                 const std::string& why) const {
    const fs::path run = folder_ / "work/runs" / name;
    fs::create_directories(run);
    std::string metrics;
    for (int step = 1; step <= steps; ++step)
      metrics += concat("{\"step\": ", step, ", \"consumed_tokens\": ", step * 100, ", \"lm_loss\": ", 10.0 / step,
                        ", \"step_seconds\": 0.5, \"tokens_per_second\": 200}\n");
    metrics += concat("{\"step\": ", steps, ", \"validation\": {\"wiki\": {\"lm_loss\": 0.75, \"ppl\": 2.1}}}\n");
    write_file_atomically(run / "metrics.jsonl", metrics + "{\"step\": 51, \"lm_l");
    write_file_atomically(
        run / "events.jsonl",
        concat("{\"time\": 1.5, \"event\": \"start\", \"step\": 0, \"detail\": \"of 50 steps\"}\n",
               "{\"time\": 9.5, \"event\": \"", ending, "\", \"step\": ", steps, ", \"detail\": \"", why, "\"}\n"));
    write_file_atomically(run / "config.toml", concat("[learning_rate]\nlr = ", lr,
                                                      "\nmin_lr = 0.0\n[checkpointing]\nsave = \"", name, "\"\n"));
  }
};

TEST_F(Runs, PlotDrawsTheNumbersOfTheFiles) {
  const Outcome drawn = bash("espalier runs plot runs/first runs/second --labels one '<two>' --output a.svg");
  ASSERT_EQ(drawn.exit_code, 0) << drawn.errors;
  EXPECT_EQ(drawn.output, "'a.svg': lm_loss of 2 runs\n");
  const std::string svg = read_file(folder_ / "work/a.svg");
  for (const char* part : {"&lt;two&gt;</text>", ">one</text>", ">lm_loss</text>", ">step</text>"})
    EXPECT_NE(svg.find(part), std::string::npos) << part;
  EXPECT_EQ(bash("espalier runs plot runs/first --output a.svg").exit_code, 2) << "it exists";
  const Json points = Json::parse(
      bash("espalier runs plot runs/second --against seconds --output a.svg --overwrite --json").output)["runs"][0];
  ASSERT_EQ(points["x"].size(), 30U);
  EXPECT_EQ(points["label"], "runs/second");
  for (int i = 0; i < 30; ++i) {
    EXPECT_EQ(points["x"][i], 0.5 * (i + 1));
    EXPECT_NEAR(points["y"][i].get<double>(), 10.0 / (i + 1), 1e-4) << "as the file has it";
  }
  const Json evaluated =
      Json::parse(bash("espalier runs plot runs/first --metric validation/wiki/ppl --against tokens --output b.svg "
                       "--json")
                      .output)["runs"][0];
  EXPECT_EQ(evaluated["x"], Json({5000.0}));
  EXPECT_NEAR(evaluated["y"][0].get<double>(), 2.1, 1e-6);
}

TEST_F(Runs, PlotNamesWhatIsMissing) {
  const Outcome unknown = bash("espalier runs plot runs/first --metric lm_los --output c.svg");
  EXPECT_EQ(unknown.exit_code, 66) << unknown.errors;
  EXPECT_NE(unknown.errors.find("has no 'lm_los'; it has consumed_tokens, lm_loss, "), std::string::npos)
      << unknown.errors;
  EXPECT_NE(unknown.errors.find("validation/wiki/ppl"), std::string::npos) << unknown.errors;
  EXPECT_EQ(bash("espalier runs plot runs/none --output c.svg").exit_code, 66);
  EXPECT_EQ(bash("espalier runs plot runs/first --labels a b --output c.svg").exit_code, 2);
  EXPECT_EQ(bash("espalier runs plot runs/first").exit_code, 2) << "no --output";
  EXPECT_FALSE(fs::exists(folder_ / "work/c.svg"));
}

TEST_F(Runs, ListShowsStatusStepsLossAndSpeed) {
  const Outcome outcome = bash("espalier runs list runs");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const std::vector<std::string> lines = split(outcome.output, '\n');
  ASSERT_EQ(lines.size(), 4U) << outcome.output;
  EXPECT_EQ(split_blanks(lines[0]),
            (std::vector<std::string>{"run", "status", "steps", "loss", "tokens/s", "changed"}));
  EXPECT_EQ(lines[1].find("runs/first   finished  50 of 50  0.2000       200  "), 0U) << lines[1];
  EXPECT_EQ(lines[2].find("runs/second  stopped   30 of 50  0.3333       200  "), 0U) << lines[2];
  const Json json = Json::parse(bash("espalier runs list --json runs").output);
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[1]["status"], "stopped");
  EXPECT_EQ(json[1]["detail"], "SIGTERM");
  EXPECT_EQ(json[1]["step"], 30);
  EXPECT_EQ(json[1]["num_steps"], 50);
  EXPECT_EQ(json[1]["loss"], 0.333333) << "as the file has it";
  EXPECT_EQ(bash("espalier runs list none").exit_code, 66);
  EXPECT_EQ(bash("mkdir empty; espalier runs list --json empty").output, "[]\n");
}

TEST_F(Runs, ShowDrawsTheLossWithinTheWidthAsked) {
  const Outcome outcome = bash("LC_ALL=C.UTF-8 espalier runs show runs/first --width 60 --height 10");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  for (const char* part : {"status       finished: all steps done", "steps        50 of 50",
                           "loss         0.2000, at the start 10.0000, lowest 0.2000 at step 50",
                           "validation   wiki: lm_loss 0.75 ppl 2.1 after step 50", "200 tokens/s, 0.5 s a step",
                           "records      1 lines of metrics.jsonl are cut off", "⣀", "└──"})
    EXPECT_NE(outcome.output.find(part), std::string::npos) << part << " in\n" << outcome.output;
  const std::string plot = outcome.output.substr(outcome.output.find("lm_loss\n"));
  for (const std::string& line : split(plot, '\n')) EXPECT_LE(display_width(line), 60U) << line;
  const Outcome ascii = bash("LC_ALL=C espalier runs show runs/first");
  for (const char c : ascii.output) ASSERT_GE(c, 0) << ascii.output;
  const Json json = Json::parse(bash("espalier runs show --json runs/second").output);
  EXPECT_EQ(json["steps"].size(), 30U);
  EXPECT_DOUBLE_EQ(json["losses"][3], 2.5);
  EXPECT_EQ(json["evaluations"]["validation"]["wiki"]["lm_loss"], 0.75);
  EXPECT_EQ(json["options"]["lr"], "0.002");
  EXPECT_EQ(json["bad_lines"], 1);
  EXPECT_EQ(bash("espalier runs show runs").exit_code, 66);
}

TEST_F(Runs, CompareShowsOptionsThatDifferAndFiguresSideBySide) {
  const Outcome outcome = bash("espalier runs compare runs/first runs/second");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const auto has_row = [&](const std::vector<std::string>& words) {
    for (const std::string& line : split(outcome.output, '\n'))
      if (split_blanks(line) == words) return true;
    return false;
  };
  EXPECT_TRUE(has_row({"lr", "0.001", "0.002"})) << outcome.output;
  EXPECT_TRUE(has_row({"loss", "at", "step", "30", "0.3333", "0.3333"})) << outcome.output;
  EXPECT_TRUE(has_row({"status", "finished", "stopped"})) << outcome.output;
  EXPECT_EQ(outcome.output.find("min_lr"), std::string::npos) << "it is the same";
  EXPECT_EQ(outcome.output.find("save"), std::string::npos) << "it always differs";
  const Json json = Json::parse(bash("espalier runs compare --json runs/first runs/second").output);
  EXPECT_EQ(json["different_options"], (Json{{"lr", {"0.001", "0.002"}}}));
  EXPECT_EQ(json["common_step"], 30);
  EXPECT_EQ(bash("espalier runs compare runs/first").exit_code, 2);
}

TEST_F(Runs, ServePrintsAnAddressThatGivesThePageAndTheRuns) {
  const Outcome outcome = bash(R"(
    espalier runs serve runs >address 2>messages & server=$!
    for attempt in {1..100}; do [ -s address ] && break; sleep 0.1; done
    get() {  # get PATH: the reply, through bash alone
      exec 3<>"/dev/tcp/127.0.0.1/$port"
      printf 'GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n' "$1" >&3
      cat <&3
    }
    address=$(<address) port=${address#http://127.0.0.1:} secret=/${port#*/} port=${port%%/*}
    get "$secret" >page; get "${secret}api/runs" >runs.json; get "${secret}../../../etc/passwd" >outside
    get "${secret}api/run?id=..%2Ffirst" >no_run; get / >no_secret
    id=$(grep -o '"id":"[0-9a-f]*"' runs.json | head -1 | cut -d'"' -f4)
    get "${secret}api/bins?id=$id&from=1&to=50&bins=5&column=lm_loss" >bins; get "${secret}api/new?id=$id&since=48&generation=1" >new
    get "${secret}api/bins?id=$id&from=5&to=1&bins=5" >no_bins
    get "${secret}api/ranks?id=$id" >ranks; get "${secret}api/ranks?id=0" >no_ranks
    get "${secret}api/plan?id=$id" >no_plan; get "${secret}api/texts?id=$id&step=3" >no_texts
    kill -INT $server; wait $server; echo "exit $?")");
  const auto file = [&](const char* name) { return read_file(folder_ / "work" / name); };
  const auto body = [&](const char* name) {
    const std::string reply = file(name);
    return Json::parse(reply.substr(reply.find("\r\n\r\n")));
  };
  EXPECT_NE(outcome.output.find("exit 0"), std::string::npos) << outcome.output << outcome.errors << file("messages");
  EXPECT_NE(file("page").find("200 OK"), std::string::npos);
  EXPECT_NE(file("page").find("<script src=\"page.js\">"), std::string::npos);
  ASSERT_EQ(body("runs.json").size(), 2U);
  EXPECT_EQ(body("runs.json")[0]["folder"], "runs/first");
  // The loss is 10 / step: over steps 1 to 10 from 1 to 10, over 41 to 50 from 10/50 to 10/41.
  EXPECT_EQ(body("bins")["columns"]["lm_loss"][0][0], 1);
  EXPECT_EQ(body("bins")["columns"]["lm_loss"][1][0], 10);
  EXPECT_NEAR(body("bins")["columns"]["lm_loss"][0][4].get<double>(), 0.2, 1e-6);
  EXPECT_NEAR(body("bins")["columns"]["lm_loss"][1][4].get<double>(), 10.0 / 41, 1e-6);
  EXPECT_EQ(body("new")["steps"], (Json{49, 50}));
  EXPECT_EQ(body("ranks")["ranks"].size(), 0U);
  EXPECT_EQ(body("ranks")["why"], "no launcher answers for this run on this machine");
  for (const char* name : {"outside", "no_run", "no_bins", "no_ranks", "no_plan", "no_texts"})
    EXPECT_NE(file(name).find("404 Not Found"), std::string::npos) << name << ": " << file(name);
  EXPECT_NE(file("no_secret").find("403 Forbidden"), std::string::npos);
  EXPECT_EQ(bash("espalier runs serve nothing").exit_code, 66);
  EXPECT_EQ(bash("espalier runs serve runs --host example").exit_code, 2);
}

// What the page asks a server for is in the report: the same lists, and the extremes of the losses 10 / step.
TEST_F(Runs, ReportIsOneFileThatHoldsTheRuns) {
  write_file_atomically(folder_ / "work/runs/first/events.jsonl",
                        "{\"time\": 1.5, \"event\": \"start\", \"step\": 0, \"detail\": \"</script><!-- <b>\"}\n");
  const Outcome outcome = bash("espalier runs report runs --output r.html");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.errors;
  const std::string page = read_file(folder_ / "work/r.html");
  for (const char* word : {"src=\"", "stylesheet", "http:", "https:", "</script><!--"})
    EXPECT_EQ(page.find(word), std::string::npos) << word;
  const std::string begin = "<script>window.snapshot = ";
  const size_t at = page.find(begin) + begin.size();
  const Json snapshot = Json::parse(page.substr(at, page.find(";</script>", at) - at));
  ASSERT_EQ(snapshot["runs"].size(), 2U);
  const Json& first = snapshot["details"][snapshot["runs"][0]["id"].get<std::string>()];
  EXPECT_EQ(first["run"]["folder"], "runs/first");
  EXPECT_EQ(first["run"]["events"][0]["detail"], "</script><!-- <b>");
  ASSERT_EQ(first["bins"]["columns"]["lm_loss"][0].size(), 50U);
  for (size_t i = 0; i < 50; ++i)
    EXPECT_NEAR(first["bins"]["columns"]["lm_loss"][1][i].get<double>(), 10.0 / static_cast<double>(i + 1), 1e-5);
  EXPECT_EQ(bash("espalier runs report runs --output r.html").exit_code, 2) << "it exists";
  EXPECT_EQ(bash("espalier runs report runs --output r.html --overwrite").exit_code, 0);
  EXPECT_EQ(bash("mkdir empty; espalier runs report empty --output e.html").exit_code, 66);
}

TEST_F(Command, VersionIsThatOfTheProject) {
  const std::string project = read_file(root() + "/CMakeLists.txt");
  const size_t at = project.find("project(espalier VERSION ") + 25;
  const std::string version = project.substr(at, project.find(' ', at) - at);
  const Outcome outcome = bash("espalier version");
  EXPECT_EQ(outcome.output.find("espalier " + version + "\n"), 0U) << outcome.output;
  EXPECT_EQ(bash("espalier --version").output, outcome.output);
  const Json json = Json::parse(bash("espalier version --json").output);
  EXPECT_EQ(json["version"], version);
  EXPECT_EQ(json["libtorch"], "2.11.0");
  EXPECT_EQ(json["engine"], true);
}

TEST_F(Command, DoctorFindsWhatIsHereAndWhatIsMissing) {
  const Outcome good = bash("espalier doctor --json .");
  const Json json = Json::parse(good.output);
  const auto finding = [](const Json& object, const std::string& topic) {
    for (const Json& entry : object["findings"])
      if (entry["topic"] == topic) return entry;
    return Json();
  };
  for (const char* topic : {"processor", "cores", "memory", "engine", "kernels", "GPU", "limit: open files", "folder .",
                            "shared memory", "clock", "scheduler", "started by"})
    EXPECT_FALSE(finding(json, topic).is_null()) << topic << " in " << good.output;
  EXPECT_EQ(good.exit_code, json["can_train"] ? 0 : 1);
  EXPECT_EQ(finding(json, "engine")["verdict"], "ok") << good.output;
  const Outcome missing = bash("espalier doctor --json nowhere");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(finding(Json::parse(missing.output), "folder nowhere")["verdict"], "problem") << missing.output;
  const Outcome lowered = bash("ESPALIER_CPU_ISA=generic espalier doctor --json");
  EXPECT_EQ(finding(Json::parse(lowered.output), "kernels")["text"].get<std::string>().find("generic"), 0U);
  const Outcome limited = bash("ulimit -n 100; espalier doctor");
  EXPECT_NE(limited.output.find("warning  limit: open files"), std::string::npos) << limited.output;
  const Outcome lone = bash("SLURM_JOB_ID=12 SLURM_PROCID=0 SLURM_NTASKS=8 espalier doctor --json");
  EXPECT_EQ(finding(Json::parse(lone.output), "started by")["verdict"], "warning") << lone.output;
  // A copy of the program without its engine.
  const Outcome alone = bash(concat("cp ", ESPALIER_PROGRAM, " alone && ./alone doctor --json"));
  EXPECT_EQ(alone.exit_code, 1);
  EXPECT_EQ(finding(Json::parse(alone.output), "engine")["verdict"], "problem") << alone.output;
  EXPECT_EQ(bash("ls -A").output, "alone\n") << "nothing is left behind";
}

// By a planted libnvidia-ml.so.1; what the machine has itself is not asked while it is there.
TEST_F(Command, DoctorNamesGpusAndTheirDriver) {
  const auto gpu = [&](const std::string& settings) {
    const Outcome outcome =
        bash(concat("export LD_LIBRARY_PATH=", ESPALIER_FAKE_NVML, "; ", settings, " espalier doctor --json"));
    Json json = Json::parse(outcome.output);
    for (const Json& entry : json["findings"])
      if (entry["topic"] == "GPU") json["text"] = entry["text"];
    return json;
  };
  const Json two = gpu("");
  EXPECT_EQ(two["gpu_driver"], "550.90.07");
  ASSERT_EQ(two["gpus"].size(), 2u) << two;
  EXPECT_EQ(two["gpus"][1]["name"], "Planted GPU");
  EXPECT_EQ(two["gpus"][1]["memory_bytes"], 85899345920);
  EXPECT_EQ(two["text"].get<std::string>().find("2 Planted GPU of 80.00 GiB, driver 550.90.07; "), 0U) << two;
  const Json lost = gpu("FAKE_GPU_LOST=1");
  EXPECT_EQ(lost["text"].get<std::string>().find("1 Planted GPU of 80.00 GiB, driver 550.90.07; GPU 1: "
                                                 "nvmlDeviceGetHandleByIndex_v2 of libnvidia-ml.so.1: Not Found; "),
            0U)
      << lost;
  // The library without a driver, as in containers of machines without a GPU.
  if (!fs::exists("/proc/driver/nvidia/version") && !fs::exists("/dev/nvidia0")) {
    EXPECT_EQ(gpu("FAKE_GPU_DRIVER=gone")["text"], "none: training runs on the CPU");
  }
}

TEST_F(Command, PlanAsksForNeitherALearningRateNorANumberOfSteps) {
  const std::string shape =
      "espalier plan gpt --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "
      "--max-position-embeddings 32 --micro-batch-size 1 --pad-vocab-size-to 1280";
  const Outcome plan = bash(shape);
  EXPECT_EQ(plan.exit_code, 0) << plan.errors;
  EXPECT_EQ(plan.output, bash(shape + " --lr 1e-3 --train-iters 10").output);
  const Outcome unit = bash(shape + " --gpu-memory 80");
  EXPECT_EQ(unit.exit_code, 2);
  EXPECT_NE(unit.errors.find("80GiB"), std::string::npos) << unit.errors;
}

TEST_F(Command, WhatPeopleWriteIsAnsweredWithWhatWorks) {
  const auto errors = [&](const std::string& command) { return bash("espalier " + command).errors; };
  EXPECT_NE(errors("train gpt --bf16 false").find("leave it out, or write --bf16=false"), std::string::npos);
  EXPECT_NE(errors("train gpt --no-bf16").find("--bf16 is a switch: leave it out"), std::string::npos);
  EXPECT_NE(errors("generate --load x Hello").find("unexpected word Hello: write --prompt Hello"), std::string::npos);
  EXPECT_EQ(errors("train gpt --recipe none.toml"), "error: --recipe: there is no file 'none.toml'\n");
  const Outcome launched = bash("espalier launch espalier train gpt --recipe none.toml");
  EXPECT_EQ(launched.exit_code, 2);
  EXPECT_EQ(launched.errors, "error: --recipe: there is no file 'none.toml'\n");
  const Outcome cold = bash("espalier generate --load nowhere --prompt x --temperature=1e-9");
  EXPECT_NE(cold.errors.find("--temperature 1e-09 (command line) is too small; use at least 1e-6, or 0"),
            std::string::npos)
      << cold.errors;
}

}  // namespace
}  // namespace espalier
