#include "apps/runs/page.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "apps/print_json.h"
#include "apps/runs/commands.h"
#include "apps/runs/page_details.h"
#include "base/error.h"
#include "base/hash.h"
#include "web/page_files.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

// The page asked for what does not exist: its own mistake, or a run that was removed.
class NotFound : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

std::string type_of(const std::string& name) {
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  return "text/html; charset=utf-8";
}

int64_t number(const web::Request& request, const char* key, int64_t lowest, int64_t highest) {
  const auto found = request.query.find(key);
  int64_t value = 0;
  const std::string text = found == request.query.end() ? "" : found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < lowest || value > highest)
    throw NotFound(concat(key, "='", text, "' is not a number from ", lowest, " to ", highest));
  return value;
}

std::string word(const web::Request& request, const char* key) {
  const auto found = request.query.find(key);
  return found == request.query.end() ? "" : found->second;
}

// The shortest text that is the number again; what is not a number is null.
void append(std::string& text, const std::vector<float>& values, size_t from = 0) {
  text += '[';
  for (size_t at = from; at < values.size(); ++at) {
    if (at > from) text += ',';
    char digits[32];
    if (std::isfinite(values[at]))
      text.append(digits, std::to_chars(digits, digits + sizeof digits, values[at]).ptr);
    else
      text += "null";
  }
  text += ']';
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json events_of(const report::Run& run) {
  constexpr size_t kMost = 1000;
  Json events = Json::array();
  const size_t begin = run.events.size() > kMost ? run.events.size() - kMost : 0;
  for (size_t at = begin; at < run.events.size(); ++at) {
    const report::RunEvent& event = run.events[at];
    events.push_back({{"time", event.time}, {"event", event.event}, {"step", event.step}, {"detail", event.detail}});
  }
  return events;
}

}  // namespace

web::Reply RunsPage::reply(const web::Request& request) {
  const std::lock_guard lock(mutex_);
  try {
    if (request.path == "api/runs") return {.body = list()};
    if (request.path == "api/run") return {.body = run(word(request, "id"))};
    if (request.path == "api/bins") return {.body = bins(request)};
    if (request.path == "api/new") return {.body = new_records(request)};
    if (request.path == "api/ranks") return {.body = dump(ranks_of_run(folder_of(word(request, "id"))))};
    if (request.path == "api/log") {
      const report::LogPlace since{static_cast<uint64_t>(number(request, "file", 0, INT64_MAX)),
                                   number(request, "bytes", 0, INT64_MAX)};
      return {.body = dump(log_of_run(folder_of(word(request, "id")), since))};
    }
    if (request.path == "api/plan") return plan(word(request, "id"));
    if (request.path == "api/texts") return texts(request);
    const std::string name = request.path.empty() ? "index.html" : request.path;
    const auto file = web::page_files().find(name);
    if (file == web::page_files().end()) throw NotFound(concat("there is no '", name, "' here"));
    return {.type = type_of(name), .body = file->second};
  } catch (const NotFound& error) {
    return {404, "text/plain; charset=utf-8", std::string(error.what()) + "\n"};
  }
}

void RunsPage::read_ahead(const std::function<bool()>& stops) {
  std::vector<std::string> ids;
  {
    const std::lock_guard lock(mutex_);
    list();
    for (const auto& [id, folder] : runs_) ids.push_back(id);
  }
  for (const std::string& id : ids) {
    if (stops()) return;
    const std::lock_guard lock(mutex_);
    if (runs_.contains(id)) index_of(id);
  }
}

web::Reply RunsPage::plan(const std::string& id) {
  try {
    return {.type = "image/svg+xml", .body = plan_picture_of_run(folder_of(id))};
  } catch (const UserError& error) {
    throw NotFound(error.what());
  }
}

web::Reply RunsPage::texts(const web::Request& request) {
  constexpr int64_t kMostSamples = 64, kLastStep = int64_t{1} << 53;
  try {
    return {.body = dump(
                texts_of_step(folder_of(word(request, "id")), number(request, "step", 1, kLastStep), kMostSamples))};
  } catch (const UserError& error) {
    throw NotFound(error.what());
  }
}

size_t RunsPage::num_columns() {
  size_t count = 0;
  list();
  for (const auto& entry : runs_) count += index_of(entry.first).columns().size();
  return count;
}

std::string RunsPage::report(int64_t most_bins) {
  constexpr int64_t kLastStep = int64_t{1} << 53;
  constexpr size_t kMostPlanBytes = 300'000;
  std::string details;
  const std::string runs = list();
  for (const auto& [id, folder] : runs_) {
    const std::string described = run(id);
    const report::MetricsIndex& index = index_of(id);
    const int64_t first = index.steps().empty() ? 0 : index.steps().front();
    const int64_t last = index.steps().empty() ? kLastStep : index.steps().back();
    std::string plan;
    try {
      plan = plan_picture_of_run(folder);
    } catch (const UserError&) {
      // Its token files or tokenizer are gone: the report says that it has no plan.
    }
    if (plan.size() > kMostPlanBytes) plan.clear();
    details += concat(details.empty() ? "" : ",", quoted_json(id), R"(:{"run":)", described, R"(,"bins":)",
                      bins(index, "", first, last, most_bins), R"(,"plan":)", quoted_json(plan), "}");
  }
  return concat(R"({"runs":)", runs, R"(,"details":{)", details, "}}");
}

std::string RunsPage::list() {
  constexpr int64_t kLastSteps = 20;
  Json array = Json::array();
  runs_.clear();
  for (const auto& folder : report::find_runs(folders_)) {
    const std::string id = hex64(hash64(folder.string()));
    runs_[id] = folder;
    const report::Run run = report::read_run(folder);
    Json row =
        to_json(run, figures_of(report::read_last_metrics(folder / "metrics.jsonl", figure_columns(), kLastSteps)));
    row["id"] = id;
    array.push_back(row);
  }
  std::erase_if(indexes_, [&](const auto& entry) { return !runs_.contains(entry.first); });
  return dump(array);
}

const std::filesystem::path& RunsPage::folder_of(const std::string& id) const {
  const auto found = runs_.find(id);
  if (found == runs_.end()) throw NotFound("there is no such run; load the page again");
  return found->second;
}

report::MetricsIndex& RunsPage::index_of(const std::string& id) {
  report::MetricsIndex& index = indexes_.try_emplace(id, folder_of(id) / "metrics.jsonl").first->second;
  index.update();
  return index;
}

std::string RunsPage::run(const std::string& id) {
  const report::Run run = report::read_run(folder_of(id));
  const report::MetricsIndex& index = index_of(id);
  Json columns = Json::array(), evaluations = Json::array();
  for (const auto& column : index.columns()) columns.push_back(column.name);
  for (const report::Evaluation& it : index.evaluations())
    evaluations.push_back(
        {{"step", it.step}, {"kind", it.kind}, {"set", it.set}, {"name", it.name}, {"value", it.value}});
  const Json object = {{"id", id},
                       {"folder", run.folder.string()},
                       {"status", report::to_string(run.status)},
                       {"status_detail", run.status_detail},
                       {"num_steps", run.num_steps ? Json(*run.num_steps) : Json(nullptr)},
                       {"checkpoints", run.checkpoints},
                       {"options", run.options},
                       {"events", events_of(run)},
                       {"columns", columns},
                       {"evaluations", evaluations},
                       {"records", index.steps().size()},
                       {"generation", index.generation()},
                       {"first_step", index.steps().empty() ? Json(nullptr) : Json(index.steps().front())},
                       {"last_step", index.steps().empty() ? Json(nullptr) : Json(index.steps().back())}};
  return dump(object);
}

std::string RunsPage::bins(const web::Request& request) {
  constexpr int64_t kMostBins = 4096, kLastStep = int64_t{1} << 53;
  const report::MetricsIndex& index = index_of(word(request, "id"));
  const int64_t from = number(request, "from", 0, kLastStep), to = number(request, "to", from, kLastStep);
  return bins(index, word(request, "column"), from, to, number(request, "bins", 1, kMostBins));
}

std::string RunsPage::bins(const report::MetricsIndex& index, const std::string& only, int64_t from, int64_t to,
                           int64_t most_bins) {
  std::string text;
  for (const auto& column : index.columns()) {
    if (!only.empty() && column.name != only) continue;
    const report::Bins bins = report::bin(index, column.name, from, to, most_bins);
    if (text.empty())
      text = concat(R"({"records":)", index.steps().size(), R"(,"generation":)", index.generation(),
                    R"(,"first_step":)", bins.first_step, R"(,"width":)", bins.width, R"(,"columns":{)");
    else
      text += ',';
    text += quoted_json(column.name) + ":[";
    append(text, bins.lowest);
    text += ',';
    append(text, bins.highest);
    text += ']';
  }
  return text.empty() ? R"({"columns":{}})" : text + "}}";
}

std::string RunsPage::new_records(const web::Request& request) {
  constexpr size_t kMostNew = 5000;  // more than that is quicker drawn anew
  const report::MetricsIndex& index = index_of(word(request, "id"));
  const std::vector<int64_t>& steps = index.steps();
  const auto since = static_cast<size_t>(number(request, "since", 0, INT64_MAX));
  if (number(request, "generation", 0, INT64_MAX) != index.generation() || since > steps.size() ||
      steps.size() - since > kMostNew)
    return R"({"anew":true})";
  if (since == steps.size()) return concat(R"({"records":)", since, R"(,"steps":[]})");
  std::string text = concat(R"({"records":)", steps.size(), R"(,"steps":)",
                            Json(std::vector<int64_t>(steps.begin() + static_cast<int64_t>(since), steps.end())).dump(),
                            R"(,"columns":{)");
  for (const auto& column : index.columns()) {
    if (&column != &index.columns().front()) text += ',';
    text += quoted_json(column.name) + ":";
    append(text, column.values, since);
  }
  return text + "}}";
}

}  // namespace espalier
