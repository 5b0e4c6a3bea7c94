#include "data/data_plan.h"

#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/format.h"
#include "data/token_files.h"

namespace espalier::data {
namespace {

constexpr const char* kDefaultSplit = "969, 30, 1";
constexpr size_t kMaxSources = 65535;

[[noreturn]] void fail(const std::string& message) { throw UserError(message, ExitCode::kUsage); }

double parse_weight(const std::string& word, const std::string& what) {
  const double weight = parse_number(word, what);
  if (weight <= 0)
    fail(concat(what, ": weight ", word, " is not above 0. Leave out a data set that is not to be read."));
  return weight;
}

std::vector<DataSource> parse_data_path(const std::vector<std::string>& words) {
  if (words.size() == 1) return {{words[0], 1, std::nullopt}};
  if (words.size() % 2 != 0)
    fail(concat("--data-path has ", words.size(), " words: ", join(words, " "),
                ". Give one prefix, or a weight before each prefix."));
  std::vector<DataSource> sources;
  for (size_t at = 0; at < words.size(); at += 2)
    sources.push_back(
        {words[at + 1], parse_weight(words[at], concat("--data-path, before '", words[at + 1], "'")), std::nullopt});
  return sources;
}

// Paths of a split file are relative to the folder we run in, as upstream reads them; else to that of the file, so that
// a folder of data can be moved with its split files.
void resolve_beside(const std::string& split_file, DataGroup& group) {
  const std::filesystem::path folder = std::filesystem::path(split_file).parent_path();
  for (DataSource& source : group.sources) {
    if (find_token_files(source.prefix)) continue;
    const std::string beside = (folder / source.prefix).lexically_normal().string();  // an absolute path stays itself
    if (find_token_files(beside)) source.prefix = beside;
  }
}

// The weighted groups of one set ("train", "valid", "test"), from the option or its file.
std::vector<DataGroup> weighted_groups(const std::string& set, std::vector<std::string> texts, const std::string& file,
                                       Problems& problems) {
  const std::string option = concat("--", set, "-weighted-split-paths");
  std::vector<DataGroup> groups;
  try {
    if (!file.empty() && !texts.empty()) fail(concat(option, " and ", option, "-path are both given. Use one."));
    if (!file.empty()) texts = parse_quoted_groups(read_file(file), concat(option, "-path ", file));
  } catch (const UserError& error) {
    problems.add(error.what());
    return groups;
  }
  std::set<std::string> names;
  for (const std::string& text : texts) {
    try {
      groups.push_back(parse_data_group(text));
      if (!file.empty()) resolve_beside(file, groups.back());
      if (!names.insert(groups.back().name).second)
        problems.add(option, ": two groups are named '", groups.back().name, "'. Give each a name of its own.");
    } catch (const UserError& error) {
      problems.add(option, ": ", error.what());
    }
  }
  return groups;
}

void check_files(const DataPlan& plan, const std::string& option_of_path, const std::string& data_impl,
                 Problems& problems) {
  std::set<std::string> reported;
  const auto check = [&](const DataGroup& group, const std::string& option) {
    if (group.sources.size() > kMaxSources)
      problems.add(option, ": ", group.sources.size(), " data sets in one blend; at most ", kMaxSources,
                   " are possible");
    for (const DataSource& source : group.sources) {
      if (reported.contains(source.prefix)) continue;
      const std::optional<TokenFiles> files = find_token_files(source.prefix);
      const std::string problem =
          files ? format_problem(*files, data_impl) : concat(option, ": ", describe_missing(source.prefix));
      if (problem.empty()) continue;
      reported.insert(source.prefix);
      problems.add(problem);
    }
  };
  const auto option = [&](const char* set) {
    return option_of_path.empty() ? concat("--", set, "-weighted-split-paths") : option_of_path;
  };
  check(plan.train, option("train"));
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
    plan.train = {"train", parse_data_path(options.data_path)};
    plan.valid = {{"valid", plan.train.sources}};
    plan.test = {{"test", plan.train.sources}};
  } catch (const UserError& error) {
    problems.add(error.what());
  }
}

void plan_by_groups(const DataSetOptions& options, DataPlan& plan, Problems& problems) {
  std::vector<DataGroup> train =
      weighted_groups("train", options.train_weighted_split_paths, options.train_weighted_split_paths_path, problems);
  if (train.size() > 1)
    problems.add("--train-weighted-split-paths has ", train.size(), " groups; training reads exactly one");
  if (!train.empty()) plan.train = train.front();
  plan.valid =
      weighted_groups("valid", options.valid_weighted_split_paths, options.valid_weighted_split_paths_path, problems);
  plan.test =
      weighted_groups("test", options.test_weighted_split_paths, options.test_weighted_split_paths_path, problems);
}

}  // namespace

DataGroup parse_data_group(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string form = ". The form is \"NAME: WEIGHT a:b PREFIX, WEIGHT a:b PREFIX\".";
  if (colon == std::string::npos) fail(concat("'", text, "' has no name", form));
  DataGroup group{strip(text.substr(0, colon)), {}};
  if (group.name.empty()) fail(concat("'", text, "' has an empty name", form));
  for (const std::string& piece : split(text.substr(colon + 1), ',')) {
    const std::vector<std::string> words = split_blanks(piece);
    if (words.size() != 3)
      fail(concat("group '", group.name, "': '", strip(piece), "' has ", words.size(), " words, not 3", form));
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
    fail(concat(file_name, ": expected groups in double quotes with blanks between them, found ",
                content.empty() ? "an empty file" : concat("'", strip(content).substr(0, 60), "'")));
  return groups;
}

DataPlan plan_data(const DataSetOptions& options, Problems& problems) {
  DataPlan plan;
  const auto given = [](const std::vector<std::string>& texts, const std::string& file) {
    return !texts.empty() || !file.empty();
  };
  const bool train = given(options.train_weighted_split_paths, options.train_weighted_split_paths_path);
  const bool groups = train || given(options.valid_weighted_split_paths, options.valid_weighted_split_paths_path) ||
                      given(options.test_weighted_split_paths, options.test_weighted_split_paths_path);
  if (groups && (!options.data_path.empty() || !options.split.empty()))
    problems.add(options.data_path.empty() ? "--split" : "--data-path",
                 " and weighted split paths exclude each other. Use one.");
  else if (groups && !train)
    problems.add("--valid- or --test-weighted-split-paths are given without --train-weighted-split-paths");
  else if (!groups && options.data_path.empty())
    problems.add("no data: give --data-path or --train-weighted-split-paths");
  if (groups)
    plan_by_groups(options, plan, problems);
  else if (!options.data_path.empty())
    plan_by_path(options, plan, problems);
  check_files(plan, groups ? "" : "--data-path", options.data_impl, problems);
  return plan;
}

}  // namespace espalier::data
