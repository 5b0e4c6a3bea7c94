#include "data/data_plan.h"

#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/format.h"
#include "data/blend_recipe.h"
#include "data/token_files.h"

namespace espalier::data {
namespace {

constexpr const char* kDefaultSplit = "969, 30, 1";
constexpr size_t kMaxSources = 65535;

[[noreturn]] void refuse_data_option(const std::string& message) { throw UserError(message, ExitCode::kUsage); }

// A pipe would be empty for the second reader: every rank reads a list for itself.
std::string read_list(const std::string& option, const std::string& file) {
  if (const std::string what = describe_no_file(file); !what.empty())
    refuse_data_option(
        concat(option, ": '", file, "' is ", what, "; expected a regular file, which every rank can read."));
  return read_file(file);
}

std::vector<DataSource> parse_data_path(const std::string& option, const std::vector<std::string>& words) {
  if (words.size() == 1) return {{words[0], 1, std::nullopt}};
  if (words.size() % 2 != 0)
    refuse_data_option(concat(option, " has ", words.size(), " words: ", join(words, " "),
                              ". Give one prefix, or a weight before each prefix."));
  std::vector<DataSource> sources;
  for (size_t at = 0; at < words.size(); at += 2)
    sources.push_back(
        {words[at + 1], parse_weight(words[at], concat(option, ", before '", words[at + 1], "'")), std::nullopt});
  return sources;
}

// Paths of a split file or a file list are relative to the folder we run in, as upstream reads them; else to that of
// the file, so that a folder of data can be moved with its lists.
void resolve_beside(const std::string& list_file, const DataSetOptions& options, std::vector<DataSource>& sources) {
  const std::filesystem::path folder = std::filesystem::path(list_file).parent_path();
  const std::string& ending = options.endings.front();
  for (DataSource& source : sources) {
    if (find_token_files(source.prefix + ending)) continue;
    const std::string beside = (folder / source.prefix).lexically_normal().string();  // an absolute path stays itself
    if (find_token_files(beside + ending)) source.prefix = beside;
  }
}

// Those of weight 0 are not read.
std::vector<DataSource> read_file_list(const DataSetOptions& options) {
  const std::string& file = options.data_file_list;
  std::vector<DataSource> sources;
  for (const BlendSource& source : parse_file_list(read_list("--data-file-list", file), "--data-file-list " + file))
    if (source.weight > 0) sources.push_back({source.prefix, source.weight, std::nullopt});
  if (sources.empty()) refuse_data_option(concat("--data-file-list ", file, ": every weight is 0"));
  resolve_beside(file, options, sources);
  return sources;
}

// The weighted groups of one set ("train", "valid", "test"), from the option or its file.
std::vector<DataGroup> weighted_groups(const std::string& set, std::vector<std::string> texts, const std::string& file,
                                       const DataSetOptions& options, Problems& problems) {
  const std::string option = concat("--", set, "-weighted-split-paths");
  std::vector<DataGroup> groups;
  try {
    if (!file.empty() && !texts.empty())
      refuse_data_option(concat(option, " and ", option, "-path are both given. Use one."));
    if (!file.empty()) texts = parse_quoted_groups(read_list(option + "-path", file), concat(option, "-path ", file));
  } catch (const UserError& error) {
    problems.add(error.what());
    return groups;
  }
  std::set<std::string> names;
  for (const std::string& text : texts) {
    try {
      groups.push_back(parse_data_group(text));
      if (!file.empty()) resolve_beside(file, options, groups.back().sources);
      if (!names.insert(groups.back().name).second)
        problems.add(option, ": two groups are named '", groups.back().name, "'. Give each a name of its own.");
    } catch (const UserError& error) {
      problems.add(option, ": ", error.what());
    }
  }
  return groups;
}

// `option_of_path` names the data of all sets; where it is empty, each set's option is "--SET" and `option_ending`.
void check_files(const DataPlan& plan, const std::string& option_of_path, const std::string& option_ending,
                 const std::string& data_impl, Problems& problems) {
  std::set<std::string> reported;
  const std::string hint =
      plan.endings.size() == 1 ? "" : concat(". A data set is two here, PREFIX", join(plan.endings, " and PREFIX"));
  const auto check = [&](const DataGroup& group, const std::string& option) {
    if (group.sources.size() > kMaxSources)
      problems.add(option, ": ", group.sources.size(), " data sets in one blend; at most ", kMaxSources,
                   " are possible");
    for (const DataSource& source : group.sources) {
      for (const std::string& ending : plan.endings) {
        const std::string name = source.prefix + ending;
        if (reported.contains(name)) continue;
        const std::optional<TokenFiles> files = find_token_files(name);
        const std::string problem =
            files ? format_problem(*files, data_impl) : concat(option, ": ", describe_missing(name), hint);
        if (problem.empty()) continue;
        reported.insert(name);
        problems.add(problem);
      }
    }
  };
  const auto option = [&](const char* set) {
    return option_of_path.empty() ? concat("--", set, option_ending) : option_of_path;
  };
  check(plan.train, option("train"));
  for (const DataPlan::Stage& stage : plan.train_stages) check({plan.train.name, stage.sources}, "--data-stages");
  for (const DataGroup& group : plan.valid) check(group, option("valid"));
  for (const DataGroup& group : plan.test) check(group, option("test"));
}

void plan_by_path(const DataSetOptions& options, DataPlan& plan, Problems& problems) {
  try {
    plan.split = parse_split(options.split.empty() ? kDefaultSplit : options.split);
  } catch (const UserError& error) {
    problems.add(error.what());
  }
  try {
    plan.train = {"train", options.data_path.empty() ? read_file_list(options)
                                                     : parse_data_path("--data-path", options.data_path)};
    plan.valid = {{"valid", plan.train.sources}};
    plan.test = {{"test", plan.train.sources}};
  } catch (const UserError& error) {
    problems.add(error.what());
  }
}

// One set of its own files, all of their documents.
void plan_by_sets(const DataSetOptions& options, DataPlan& plan, Problems& problems) {
  const auto group_of = [&](const std::string& set, const std::vector<std::string>& words) {
    DataGroup group{set, {}};
    try {
      group.sources = parse_data_path(concat("--", set, "-data-path"), words);
    } catch (const UserError& error) {
      problems.add(error.what());
    }
    for (DataSource& source : group.sources) source.range = FractionRange{0, 1};
    return group;
  };
  plan.train = group_of("train", options.train_data_path);
  if (!options.valid_data_path.empty()) plan.valid = {group_of("valid", options.valid_data_path)};
  if (!options.test_data_path.empty()) plan.test = {group_of("test", options.test_data_path)};
}

void plan_by_groups(const DataSetOptions& options, DataPlan& plan, Problems& problems) {
  std::vector<DataGroup> train = weighted_groups("train", options.train_weighted_split_paths,
                                                 options.train_weighted_split_paths_path, options, problems);
  if (train.size() > 1)
    problems.add("--train-weighted-split-paths has ", train.size(), " groups; training reads exactly one");
  if (!train.empty()) plan.train = train.front();
  plan.valid = weighted_groups("valid", options.valid_weighted_split_paths, options.valid_weighted_split_paths_path,
                               options, problems);
  plan.test = weighted_groups("test", options.test_weighted_split_paths, options.test_weighted_split_paths_path,
                              options, problems);
}

// The range that a source of a stage has which names none: the split's, all of the file, or none, where all others have
// ranges of their own.
std::optional<FractionRange> range_of_stages(bool by_groups, bool by_sets, const DataSource& source,
                                             Problems& problems) {
  if (source.range || (!by_groups && !by_sets)) return source.range;
  if (by_groups)
    problems.add("--data-stages: '", source.prefix,
                 "' has no range, and the training set is --train-weighted-split-paths. Write WEIGHT a:b PREFIX.");
  return FractionRange{0, 1};
}

// A stage from 0 on takes the place of the training set that the other options name.
void plan_stages(const DataSetOptions& options, bool by_groups, bool by_sets, DataPlan& plan, Problems& problems) {
  int64_t before = -1;
  for (const std::string& text : options.data_stages) {
    try {
      DataStage stage = parse_data_stage(text);
      for (DataSource& source : stage.sources) source.range = range_of_stages(by_groups, by_sets, source, problems);
      const int64_t first = first_sample_of(stage.start, options.sequence_length);
      if (first == before)
        problems.add("--data-stages: two stages begin at sample ", format_count(first), ". Write each once.");
      else if (first < before)
        problems.add("--data-stages: the stage from sample ", format_count(first),
                     " on comes after the one from sample ", format_count(before),
                     " on. Write them in the order of the run.");
      before = first;
      if (first == 0)
        plan.train.sources = stage.sources;
      else
        plan.train_stages.push_back({first, stage.sources});
    } catch (const UserError& error) {
      problems.add("--data-stages: ", error.what());
    }
  }
}

}  // namespace

DataGroup parse_data_group(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string form = ". The form is \"NAME: WEIGHT a:b PREFIX, WEIGHT a:b PREFIX\".";
  if (colon == std::string::npos) refuse_data_option(concat("'", text, "' has no name", form));
  DataGroup group{strip(text.substr(0, colon)), {}};
  if (group.name.empty()) refuse_data_option(concat("'", text, "' has an empty name", form));
  for (const std::string& piece : split(text.substr(colon + 1), ',')) {
    const std::vector<std::string> words = split_blanks(piece);
    if (words.size() != 3)
      refuse_data_option(
          concat("group '", group.name, "': '", strip(piece), "' has ", words.size(), " words, not 3", form));
    const std::string what = concat("group '", group.name, "', before '", words[2], "'");
    group.sources.push_back({words[2], parse_weight(words[0], what), parse_fraction_range(words[1])});
  }
  return group;
}

std::vector<std::string> parse_quoted_groups(const std::string& content, const std::string& file_name) {
  std::vector<std::string> groups;
  const std::vector<std::string> pieces = split(content, '"');  // outside, inside, outside, ...
  bool well_formed = pieces.size() >= 3 && pieces.size() % 2 == 1;
  for (size_t at = 0; at < pieces.size(); ++at) {
    if (at % 2 == 1)
      groups.push_back(pieces[at]);
    else
      well_formed = well_formed && strip(pieces[at]).empty();
  }
  if (!well_formed)
    refuse_data_option(concat(file_name, ": expected groups in double quotes with spaces between them, found ",
                              content.empty() ? "an empty file" : concat("'", strip(content).substr(0, 60), "'")));
  return groups;
}

std::vector<std::string> DataPlan::token_files() const {
  std::vector<std::string> names;
  const auto add = [&](const DataGroup& group) {
    for (const DataSource& source : group.sources)
      for (const std::string& ending : endings) names.push_back(source.prefix + ending);
  };
  add(train);
  for (const Stage& stage : train_stages) add({"train", stage.sources});
  for (const DataGroup& group : valid) add(group);
  for (const DataGroup& group : test) add(group);
  return names;
}

DataPlan plan_data(const DataSetOptions& options, Problems& problems) {
  DataPlan plan;
  plan.endings = options.endings;
  if (options.sample_order == OrderKind::kImplicit && options.packing == Packing::kBestFit)
    problems.add(
        "--sample-order implicit cuts running text, and --packing best-fit keeps documents whole by an index of ",
        "its own: they exclude each other. Leave one out");
  const auto given = [](const std::vector<std::string>& texts, const std::string& file) {
    return !texts.empty() || !file.empty();
  };
  const bool train = given(options.train_weighted_split_paths, options.train_weighted_split_paths_path);
  const bool groups = train || given(options.valid_weighted_split_paths, options.valid_weighted_split_paths_path) ||
                      given(options.test_weighted_split_paths, options.test_weighted_split_paths_path);
  const bool sets =
      !options.train_data_path.empty() || !options.valid_data_path.empty() || !options.test_data_path.empty();
  const bool by_path = given(options.data_path, options.data_file_list);
  const char* path = !options.data_path.empty()        ? "--data-path"
                     : !options.data_file_list.empty() ? "--data-file-list"
                                                       : "--split";
  const char* set = groups ? "weighted split paths" : "--train-data-path, --valid-data-path and --test-data-path";
  if (groups && sets)
    problems.add(
        "weighted split paths and --train-data-path, --valid-data-path and --test-data-path are mutually exclusive. "
        "Use one.");
  else if ((groups || sets) && (by_path || !options.split.empty()))
    problems.add(path, " and ", set, " are mutually exclusive. Use one.");
  else if (!options.data_path.empty() && !options.data_file_list.empty())
    problems.add("--data-path and --data-file-list are mutually exclusive. Use one.");
  else if (groups && !train)
    problems.add("--valid- or --test-weighted-split-paths are given without --train-weighted-split-paths");
  else if (sets && options.train_data_path.empty())
    problems.add("--valid-data-path or --test-data-path is given without --train-data-path");
  else if (!groups && !sets && !by_path)
    problems.add("no data: give --data-path or --train-weighted-split-paths");
  if (groups)
    plan_by_groups(options, plan, problems);
  else if (sets)
    plan_by_sets(options, plan, problems);
  else if (by_path)
    plan_by_path(options, plan, problems);
  plan_stages(options, groups, sets && !groups, plan, problems);
  check_files(plan, groups || sets ? "" : path, groups ? "-weighted-split-paths" : "-data-path", options.data_impl,
              problems);
  return plan;
}

}  // namespace espalier::data
