#include "apps/engine/same_options.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/format.h"

namespace espalier {
namespace {

using Values = std::map<std::string, std::string>;

Values values_of(const OptionTable& table, const launch::RankEnvironment& place) {
  Values values;
  for (const auto& option : table.options()) {
    const bool is_text = option->kind() == OptionKind::kText && option->legal_values().empty();
    const bool may_differ = option->resume_rule() == ResumeRule::kFree &&
                            (is_text || option->name() == "--num-threads" || option->name() == "--local-rank");
    if (option->effect() == OptionEffect::kUsed && !may_differ) values[option->name()] = join(option->values(), " ");
  }
  // They would meet in different ways.
  if (values["--distributed-backend"] != "gloo")
    values["ranks on one machine (by LOCAL_WORLD_SIZE or MASTER_ADDR)"] = place.one_machine ? "all" : "not all";
  return values;
}

std::string in_words(const std::string& value) { return value.empty() ? "not given" : value; }

}  // namespace

void check_same_options(const OptionTable& table, const launch::RankEnvironment& place, c10d::Store& store) {
  const std::string key = concat("options/", place.restart_count);
  const Values own = values_of(table, place);
  if (place.rank == 0) {
    const std::string text = nlohmann::json(own).dump();
    store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
    return;
  }
  const std::vector<uint8_t> text = store.get(key);
  const auto first = nlohmann::json::parse(text.begin(), text.end()).get<Values>();
  std::string different;
  for (const auto& [name, value] : own) {
    const auto found = first.find(name);
    const std::string other = found == first.end() ? "" : found->second;
    if (other != value)
      different +=
          concat(different.empty() ? "" : "; ", name, ": ", in_words(value), " here, ", in_words(other), " there");
  }
  if (!different.empty())
    throw UserError(concat("rank ", place.rank, " was started with other options than rank 0 (", different,
                           "). Start the same command line on all machines."),
                    ExitCode::kUsage);
}

}  // namespace espalier
