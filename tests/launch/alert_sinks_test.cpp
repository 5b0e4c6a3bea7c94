// Alerts of real incidents, delivered by the commands of docs/launch.md to a web server and a mail server that refuse
// at first; and a healthy run that looks like an incident, but is none.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/format.h"
#include "data/token_store.h"
#include "tests/launch/launch_fixture.h"
#include "tests/launch/launcher_process.h"
#include "tests/support/sinks.h"

namespace espalier::test {
namespace alert_sinks_test {

using nlohmann::json;

// The command of the line of docs/launch.md that names `target`, with `replacement` in its place.
std::string documented_command(const std::string& target, const std::string& replacement) {
  std::ifstream page("docs/launch.md");
  for (std::string line; std::getline(page, line);) {
    const std::string option = "--alert-command '";
    const size_t begin = line.find(option), at = line.find(target);
    if (begin == std::string::npos || at == std::string::npos) continue;
    line.replace(at, target.size(), replacement);
    const size_t from = begin + option.size();
    return line.substr(from, line.find('\'', from) - from);
  }
  return "";
}

class AlertSinks : public testing::Test {
 protected:
  AlertSinks() { write_token_files(folder_ / "data", 300, 5); }
  Words training(const Words& more) const {
    return Words{"train", "gpt"} + tiny_run(folder_ / "data") +
           Words{"--num-threads",   "1",      "--eval-interval", "100000",
                 "--save-interval", "100000", "--save",          folder_ / "run"} +
           more;
  }
  std::unique_ptr<LauncherProcess> launch(const std::string& alert_command, const Words& more,
                                          int num_ranks = 1) const {
    return std::make_unique<LauncherProcess>(
        folder_ / "log",
        Words{"--nproc-per-node", std::to_string(num_ranks), "--alert-command", alert_command} + training(more));
  }
  static bool has_ended(LauncherProcess& launcher) {
    return wait_until(120, [&] { return !launcher.runs(); });
  }
  std::string to_file() const { return concat("cat >>", folder_ / "alerts"); }
  std::vector<json> in_file() const {
    std::vector<json> alerts;
    std::ifstream file(folder_ / "alerts");
    for (std::string line; std::getline(file, line);)
      if (json alert = json::parse(line); alert.at("incident") != "straggler") alerts.push_back(std::move(alert));
    return alerts;
  }
  std::string events() const { return read_file(folder_ / "run/events.jsonl"); }
  const Words endless_ = {"--train-samples", "8000000", "--lr-decay-samples", "8000000"};
  TemporaryFolder folder_;
};

TEST_F(AlertSinks, AWebhookThatRefusesAtFirst) {
  HttpSink sink(2);
  const std::string command =
      documented_command("https://hooks.example/run", concat("http://127.0.0.1:", sink.port(), "/run"));
  ASSERT_NE(command, "");
  auto run = launch(command, endless_);
  ASSERT_TRUE(wait_until(60, [&] { return num_records(folder_ / "run") > 3; })) << run->said();
  kill(run->ranks().at(0), SIGKILL);
  ASSERT_TRUE(has_ended(*run));
  ASSERT_EQ(sink.taken().size(), 1u) << run->said();
  EXPECT_EQ(sink.num_refused(), 2);
  const json alert = json::parse(sink.taken()[0]);
  EXPECT_EQ(alert.at("incident"), "failure");
  EXPECT_EQ(alert.at("run"), folder_ / "run");
  EXPECT_NE(alert.at("detail").get<std::string>().find("rank 0 on "), std::string::npos);
  EXPECT_NE(events().find("\"event\":\"alerted\""), std::string::npos) << events();
}

TEST_F(AlertSinks, AMailServerThatRefusesAtFirst) {
  SmtpSink sink(1);
  const std::string command = documented_command("smtp://mail.example.org", concat("smtp://127.0.0.1:", sink.port()));
  ASSERT_NE(command, "");
  auto run = launch(command, endless_);
  ASSERT_TRUE(wait_until(60, [&] { return num_records(folder_ / "run") > 3; })) << run->said();
  kill(run->ranks().at(0), SIGKILL);
  ASSERT_TRUE(has_ended(*run));
  ASSERT_EQ(sink.taken().size(), 1u) << run->said();
  EXPECT_EQ(sink.num_refused(), 1);
  EXPECT_EQ(json::parse(sink.taken()[0]).at("incident"), "failure");
}

// The program `mail` as a script that keeps its words and what it reads, and fails at its first try.
TEST_F(AlertSinks, TheProgramMail) {
  const std::string command = documented_command("me@example.org", "you@example.org");
  ASSERT_TRUE(command.starts_with("mail -s ")) << command;
  std::filesystem::create_directories(folder_ / "bin");
  std::ofstream(folder_ / "bin/mail") << "#!/bin/sh\n[ -e " << folder_ / "tried"
                                      << " ] || { touch " << folder_ / "tried"
                                      << "; exit 75; }\n"
                                      << "{ printf '%s|' \"$@\"; cat; } >>" << folder_ / "mailed"
                                      << "\n";
  std::filesystem::permissions(folder_ / "bin/mail", std::filesystem::perms::owner_all);
  auto run = launch(concat("PATH=", folder_ / "bin", ":$PATH; ", command), endless_);
  ASSERT_TRUE(wait_until(60, [&] { return num_records(folder_ / "run") > 3; })) << run->said();
  kill(run->ranks().at(0), SIGKILL);
  ASSERT_TRUE(has_ended(*run));
  const std::string mailed = read_file(folder_ / "mailed");
  EXPECT_TRUE(mailed.starts_with("-s|training: ")) << mailed;
  EXPECT_NE(mailed.find("|you@example.org|{"), std::string::npos) << mailed;
  EXPECT_EQ(json::parse(mailed.substr(mailed.find('{'))).at("incident"), "failure");
}

// Weights far too large after the first update: the next loss is not a number.
TEST_F(AlertSinks, ALossThatIsNoNumberIsDelivered) {
  HttpSink sink(1);
  auto run = launch(documented_command("https://hooks.example/run", concat("http://127.0.0.1:", sink.port(), "/run")),
                    {"--lr", "1e25", "--min-lr", "1e24", "--lr-warmup-samples", "0"});
  ASSERT_TRUE(has_ended(*run));
  EXPECT_EQ(run->exit_code(), 17) << run->said();
  // A run of a moment: its end may be told before what its ranks have written.
  std::map<std::string, json> told;
  for (const std::string& body : sink.taken()) told[json::parse(body).at("incident")] = json::parse(body);
  ASSERT_EQ(sink.taken().size(), 2u) << run->said();
  ASSERT_TRUE(told.contains("alert") && told.contains("failure")) << run->said();
  const json& alert = told.at("alert");
  EXPECT_NE(alert.at("detail").get<std::string>().find("loss is not a number"), std::string::npos) << alert;
  EXPECT_EQ(alert.at("step"), 2);
}

// Each sample is the same token again and again, and the learning rate is too small to change a weight.
TEST_F(AlertSinks, ALossThatStaysTheSameIsDelivered) {
  data::TokenStoreWriter writer(folder_ / "same", data::TokenType::kUint16);
  for (int document = 0; document < 4; ++document) {
    writer.add_sequence(std::vector<int32_t>(5000, 51));
    writer.end_document();
  }
  writer.finish();
  auto run = launch(to_file(), {"--data-path", folder_ / "same", "--lr", "1e-30", "--min-lr", "1e-31",
                                "--hidden-dropout", "0", "--attention-dropout", "0", "--train-samples", "1200",
                                "--lr-decay-samples", "1200", "--weight-decay", "0"});
  ASSERT_TRUE(has_ended(*run));
  EXPECT_EQ(run->exit_code(), 0) << run->said();
  const auto alerts = in_file();
  ASSERT_EQ(alerts.size(), 1u) << run->said();
  EXPECT_EQ(alerts[0].at("incident"), "constant loss");
  EXPECT_EQ(alerts[0].at("step"), 50);
}

// Records without a key, written while the run pauses as if it had made them.
TEST_F(AlertSinks, AMetricThatStopsComingIsDelivered) {
  auto run = launch(to_file(), endless_);
  ASSERT_TRUE(wait_until(60, [&] { return num_records(folder_ / "run") > 30; })) << run->said();
  shell(folder_, concat("espalier ctl ", folder_ / "run", " pause"));
  ASSERT_TRUE(wait_until(60, [&] { return run->said().find("paused after step") != std::string::npos; }));
  std::ifstream file(folder_ / "run/metrics.jsonl");
  std::string last;
  for (std::string line; std::getline(file, line);) last = line;
  json record = json::parse(last);
  const auto add = [&](int times) {
    std::ofstream records(folder_ / "run/metrics.jsonl", std::ios::app);
    for (int time = 0; time < times; ++time) records << record.dump() << "\n";
  };
  record.erase("grad_norm");
  record["skipped"] = true;  // as a step whose gradients overflow: nothing is missed
  add(15);
  record["skipped"] = false;
  add(9);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_TRUE(in_file().empty());
  add(6);
  ASSERT_TRUE(wait_until(20, [&] { return !in_file().empty(); })) << run->said();
  run->send(SIGTERM);
  ASSERT_TRUE(has_ended(*run));
  const auto alerts = in_file();
  ASSERT_EQ(alerts.size(), 1u);
  EXPECT_EQ(alerts[0].at("incident"), "missing metric");
  EXPECT_NE(alerts[0].at("detail").get<std::string>().find("'grad_norm'"), std::string::npos) << alerts[0];
}

// The search for a loss scale begins with overflows; they are no incident.
TEST_F(AlertSinks, AHealthyStartInFp16SendsNone) {
  auto run = launch(to_file(), {"--fp16", "--train-samples", "480", "--lr-decay-samples", "480"});
  ASSERT_TRUE(has_ended(*run));
  EXPECT_EQ(run->exit_code(), 0) << run->said();
  int64_t num_skipped = 0;
  const auto records = step_records(folder_ / "run");
  for (const json& record : records) num_skipped += record.value("skipped", false);
  EXPECT_GT(num_skipped, 1);
  EXPECT_FALSE(records.back().at("skipped").get<bool>());
  EXPECT_NE(events().find("\"event\":\"overflow\""), std::string::npos) << events();
  EXPECT_EQ(events().find("\"event\":\"alert\""), std::string::npos) << events();
  EXPECT_TRUE(in_file().empty());
}

}  // namespace alert_sinks_test
}  // namespace espalier::test
