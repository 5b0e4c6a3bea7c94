#include "apps/engine/same_options.h"

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <nlohmann/json.hpp>

#include "base/format.h"

namespace espalier {
namespace {

NamedValues values_of(const OptionTable& table, const launch::RankEnvironment& place) {
  NamedValues values;
  for (const auto& option : table.options()) {
    const bool is_text = option->kind() == OptionKind::kText && option->legal_values().empty();
    const bool may_differ = option->resume_rule() == ResumeRule::kFree &&
                            (is_text || option->name() == "--num-threads" || option->name() == "--local-rank");
    if (option->effect() == OptionEffect::kUsed && !may_differ) values[option->name()] = join(option->values(), " ");
  }
  if (values["--distributed-backend"] != "gloo") add_one_machine(place, values);
  return values;
}

std::string in_words(const std::string& value) { return value.empty() ? "not given" : value; }

}  // namespace

void add_one_machine(const launch::RankEnvironment& place, NamedValues& values) {
  values["ranks on one machine (by LOCAL_WORLD_SIZE or MASTER_ADDR)"] = place.one_machine ? "all" : "not all";
}

void check_same_options(const OptionTable& table, const launch::RankEnvironment& place, c10d::Store& store) {
  check_same_values(values_of(table, place), place, store);
}

void check_same_values(const NamedValues& own, const launch::RankEnvironment& place, c10d::Store& store) {
  const std::string key = concat("options/", place.restart_count);
  if (place.rank == 0) {
    const std::string text = nlohmann::json(own).dump();
    store.set(key, std::vector<uint8_t>(text.begin(), text.end()));
    return;
  }
  const std::vector<uint8_t> text = store.get(key);
  const auto first = nlohmann::json::parse(text.begin(), text.end()).get<NamedValues>();
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
