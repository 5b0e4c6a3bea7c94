#include "apps/runs/page_details.h"

#include <algorithm>

#include "apps/data/run_samples.h"
#include "config/run_config.h"
#include "families/recorded_run.h"
#include "launch/control_socket.h"
#include "plan/run_plan.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSecondsToTellRanks = 2;
constexpr int64_t kMostLogPiece = 64 << 10;

}  // namespace

Json ranks_of_run(const std::filesystem::path& folder) {
  Json found = {{"ranks", Json::array()}};
  std::string why = "no launcher answers for this run on this machine";
  for (const launch::ControlPlace& place : launch::control_places(folder.string())) {
    if (!place.is_here) {
      why = concat("the run is on another machine: ", place.host);
      continue;
    }
    const launch::ControlReply reply = launch::ask_control(place, {{"command", "status"}}, kSecondsToTellRanks);
    if (reply.outcome == launch::ControlOutcome::kTrouble) why = reply.trouble;
    if (reply.outcome != launch::ControlOutcome::kAnswered) continue;
    for (const char* key : {"phase", "step", "paused"})
      if (!found.contains(key)) found[key] = reply.message.value(key, Json());
    for (const Json& rank : reply.message.at("ranks")) found["ranks"].push_back(rank);
  }
  if (found["ranks"].empty()) found["why"] = why;
  return found;
}

std::string plan_picture_of_run(const std::filesystem::path& folder) {
  families::RecordedRun run = families::read_recorded_run(folder, std::nullopt);
  if (run.layout) run.config.grid = *run.layout;
  if (run.config.vocabulary.padded_size == 0) config::set_vocabulary(run.config, tokenizer_of_run(run)->vocab_size());
  return plan::to_svg(plan::plan_run(config::run_shape(run.config)), std::nullopt);
}

Json texts_of_step(const std::filesystem::path& folder, int64_t step, int64_t most) {
  RunSamples samples(folder.string(), step, {});
  const plan::SampleRange range = samples.samples_of(step);
  const std::unique_ptr<text::Tokenizer> tokenizer = tokenizer_of_run(samples.run());
  const std::optional<bool> equal = samples.equals_record(step);
  Json object = {{"step", step},
                 {"fate", samples.fate(step)},
                 {"as_recorded", equal ? Json(*equal) : Json(nullptr)},
                 {"count", range.count},
                 {"samples", Json::array()}};
  for (int64_t at = 0; at < std::min(range.count, most); ++at)
    object["samples"].push_back(sample_json(samples, range.first + at, tokenizer.get()));
  return object;
}

Json log_of_run(const std::filesystem::path& folder, const report::LogPlace& since) {
  const report::LogPiece piece = report::read_log_tail(folder / "log.txt", since, kMostLogPiece);
  // An inode may have more digits than a number of JavaScript.
  return {
      {"anew", piece.anew}, {"text", piece.text}, {"file", std::to_string(piece.end.file)}, {"bytes", piece.end.bytes}};
}

}  // namespace espalier
