#include "curate/blend.h"

#include "base/file.h"
#include "base/format.h"
#include "base/log.h"

namespace espalier::curate {
namespace {

namespace fs = std::filesystem;
using Sources = std::vector<data::BlendSource>;

data::FractionRange range_of(const char* option, const std::string& text, Problems& problems) {
  try {
    return data::parse_fraction_range(text);
  } catch (const UserError& error) {
    problems.add(option, " ", error.what());
    return {};
  }
}

// BLOOM's paths are FOLDER/LANGUAGE/NAME_text_document.
bool is_about(const data::BlendSource& ratio, const std::string& group) {
  const fs::path path = ratio.prefix;
  return ratio.corpus == group || path.filename() == group + "_text_document" || path.filename() == group ||
         path.parent_path().filename() == group;
}

// Of the outputs that ratios name; the others weigh nothing.
void weigh_by_ratios(const Sources& ratios, Sources& sources) {
  std::vector<std::string> unused;
  for (const data::BlendSource& ratio : ratios) {
    bool used = false;
    for (data::BlendSource& source : sources) {
      if (!is_about(ratio, source.corpus)) continue;
      source.weight += ratio.weight;
      used = true;
    }
    if (!used) unused.push_back(ratio.prefix);
  }
  if (!unused.empty())
    log_warning(unused.size(), " of ", ratios.size(), " ratios match no output (the first: ", unused.front(),
                "); the others share the whole in proportion");
}

Sources sources_of(const fs::path& folder, const std::vector<GroupTally>& groups) {
  Sources sources;
  for (const GroupTally& group : groups) {
    if (group.num_tokens <= 0) continue;
    data::BlendSource source;
    source.prefix = (folder / (group.name + "_text_document")).string();
    source.corpus = group.name;
    sources.push_back(source);
  }
  return sources;
}

}  // namespace

void add_rows(OptionTable& table, BlendPlan& plan) {
  table.add("--alpha", plan.alpha, "weight of an output: its tokens to this power").minimum(0).maximum(10);
  table.add("--epochs", plan.epochs, "count the tokens of an output this many times").value_name("OUTPUT=N");
  table.add("--ratios", plan.ratios, "JSON as BLOOM's, whose entries are found by the names of outputs");
  table.add("--train-range", plan.train_range, "documents for training, as shares");
  table.add("--valid-range", plan.valid_range, "documents for validation");
  table.add("--valid-per-corpus", plan.valid_per_corpus, "a validation group for each output");
  table.add("--train-tokens", plan.train_tokens, "length of the run, for the figures of the report").minimum(1);
}

void check(BlendPlan& plan, Problems& problems) {
  plan.epochs_of = data::parse_epochs(plan.epochs, problems);
  plan.train = range_of("--train-range", plan.train_range, problems);
  plan.valid = range_of("--valid-range", plan.valid_range, problems);
  if (plan.valid.begin < plan.train.end && plan.train.begin < plan.valid.end)
    problems.add("--train-range ", plan.train_range, " and --valid-range ", plan.valid_range,
                 " share documents: the model would be validated on what it was trained on");
  if (plan.ratios.empty()) return;
  if (plan.alpha || !plan.epochs.empty())
    problems.add("--alpha and --epochs take weights from sizes; --ratios gives the weights itself. Leave one out.");
  try {
    plan.ratios_of = data::parse_ratios(read_file(plan.ratios), plan.ratios);
  } catch (const UserError& error) {
    problems.add("--ratios ", error.what());
  }
}

nlohmann::ordered_json write_blend(const BlendPlan& plan, const fs::path& folder,
                                   const std::vector<GroupTally>& groups) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  Sources sources = sources_of(folder, groups);
  if (sources.empty()) return rows;
  data::measure(sources, plan.train);
  if (plan.ratios_of.empty()) {
    Problems problems;
    data::set_epochs(sources, plan.epochs_of, problems);
    problems.raise(ExitCode::kBadData);
    data::weigh_by_size(sources, plan.alpha.value_or(1));
  } else {
    weigh_by_ratios(plan.ratios_of, sources);
  }
  const std::vector<std::string> dropped = data::drop_unweighted(sources);
  if (!dropped.empty()) log_warning("left out of the mix, since they weigh nothing: ", join(dropped, ", "));
  if (sources.empty()) throw UserError("[mix]: no output has a weight above 0", ExitCode::kBadData);
  const std::string base = folder.string();
  write_file_atomically(folder / "train-splits.txt",
                        data::split_file_content(sources, {"train", plan.train, false, base}));
  write_file_atomically(folder / "valid-splits.txt",
                        data::split_file_content(sources, {"valid", plan.valid, plan.valid_per_corpus, base}));
  const data::Amounts amounts(sources, plan.train_tokens);
  for (const data::BlendSource& source : sources)
    rows.push_back({{"output", source.corpus},
                    {"share", amounts.share(source)},
                    {"train_tokens", source.num_train_tokens},
                    {"tokens_read", amounts.tokens(source)},
                    {"epochs", amounts.epochs(source)}});
  return rows;
}

}  // namespace espalier::curate
