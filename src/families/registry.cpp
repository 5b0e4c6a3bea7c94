#include "families/registry.h"

#include "base/format.h"
#include "families/bert/config.h"
#include "families/bert_task/config.h"
#include "families/gpt/config.h"
#include "families/ict/config.h"
#include "families/ict_task/config.h"
#include "families/retro/config.h"
#include "families/t5/config.h"

namespace espalier::families {

namespace {

std::vector<const config::Family*>& list() {
  static std::vector<const config::Family*> families = {
      &gpt_family(), &bert_family(),     &t5_family(),    &bert_task_family(),
      &ict_family(), &ict_task_family(), &retro_family(),
  };
  return families;
}

}  // namespace

const std::vector<const config::Family*>& all_families() { return list(); }

void add_family(const config::Family& family) {
  ESPALIER_CHECK(find_family(family.name) == nullptr, "a second family ", family.name);
  list().push_back(&family);
}

const config::Family* find_family(const std::string& name) {
  for (const config::Family* family : all_families())
    if (family->name == name) return family;
  return nullptr;
}

std::string family_names() {
  std::vector<std::string> names;
  for (const config::Family* family : all_families()) names.push_back(family->name);
  const std::string last = names.back();
  names.pop_back();
  return names.empty() ? last : join(names, ", ") + " and " + last;
}

void read_saved_run(const store::Manifest& manifest, const std::string& folder, config::RunConfig& config,
                    OptionTable& table, Problems& problems, const std::vector<std::string>& more) {
  const config::Family* const family = find_family(manifest.model.family);
  if (family == nullptr)
    throw UserError(concat(folder, " holds a model of the family '", manifest.model.family,
                           "', which this program does not know; it knows ", family_names()),
                    ExitCode::kBadData);
  table.say_notes(false);
  config::add_options(*family, table, config);
  table.parse_toml(manifest.config, folder + "/" + store::kManifestName, problems);
  if (!more.empty()) table.parse(more, problems);
  config::resolve(config, table, problems);
  config.vocabulary = {.size = manifest.model.vocab_size, .padded_size = manifest.model.padded_vocab_size};
}

config::RunConfig read_saved_run(const store::Manifest& manifest, const std::string& folder,
                                 const std::vector<std::string>& more) {
  config::RunConfig config;
  OptionTable table("espalier train", "");
  Problems problems;
  read_saved_run(manifest, folder, config, table, problems, more);
  problems.raise(ExitCode::kBadData);
  return config;
}

}  // namespace espalier::families
