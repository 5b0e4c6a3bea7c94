#include "curate/mix.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/file.h"
#include "base/format.h"
#include "base/json_fields.h"
#include "base/log.h"
#include "base/pending_file.h"
#include "base/progress.h"
#include "curate/fates.h"
#include "curate/file_lock.h"
#include "curate/recipe_difference.h"
#include "data/preprocess.h"

namespace espalier::curate {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostGroups = 1000;
constexpr const char* kManifest = "manifest.txt";
constexpr const char* kRecipeCopy = "recipe.toml";  // for who comes with another
constexpr const char* kFinishLock = "work.lock";    // beside the work folder: held by who begins or ends it

// What the work of this recipe is known by. The number is that of the format of what lies there.
std::string work_mark(const Recipe& recipe) { return recipe.fingerprint() + " work 2"; }

fs::path work_folder(const Recipe& recipe) { return fs::path(recipe.output.folder) / "work"; }

RunPlan plan_of(Recipe& recipe) {
  RunPlan plan;
  plan.sources = recipe.sources;
  plan.steps = std::move(recipe.steps);
  plan.workers = recipe.workers;
  plan.memory_bytes = recipe.memory_bytes;
  plan.shard_bytes = recipe.shard_bytes;
  return plan;
}

// The outputs, one for each group, in the order in which they were first needed.
class Groups {
 public:
  Groups(const Recipe& recipe, fs::path folder) : plan_(recipe.output), folder_(std::move(folder)) {
    for (const InputSource& source : recipe.sources)
      for (const Metadata::Member& member : source.metadata) catalogue_keys_.insert(member.key);
    catalogue_keys_.insert("language");
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  // The index of the output and the line there, from 1.
  std::pair<size_t, int64_t> write(const Document& document) {
    const size_t index = index_of(document);
    if (plan_.is_partitioned) {
      Document without_key = document;
      without_key.metadata.erase(plan_.by);
      outputs_[index]->write(without_key);
    } else {
      outputs_[index]->write(document);
    }
    tallies_[index].bytes += static_cast<int64_t>(document.text.size());
    note_catalogue(catalogue_keys_, document, tallies_[index].catalogue);
    return {index, ++tallies_[index].num_documents};
  }
  void finish() {
    for (const auto& output : outputs_) {
      output->prepare();
      output->move_into_place();
    }
    outputs_.clear();
    if (plan_.is_partitioned && !tallies_.empty()) write_file_atomically(folder_ / kPartitionedTable / "_SUCCESS", "");
    write_manifest();
    if (!plan_.by.empty() && !tallies_.empty() && !has_value_)
      log_warning("output.by: no document has a text under the key '", plan_.by, "': all are in ",
                  tallies_.front().file);
  }
  std::vector<GroupTally>& tallies() { return tallies_; }

 private:
  // The files of the documents, a line each: for tools that read lists of files, and for another recipe.
  void write_manifest() const {
    std::string files;
    for (const GroupTally& group : tallies_) files += group.file + "\n";
    write_file_atomically(folder_ / kManifest, files);
  }
  // The value of a partition is that of its documents, letter by letter; that of a file is what its name may be.
  size_t index_of(const Document& document) {
    std::optional<std::string> value = document.metadata.text(plan_.by);
    if (const std::string_view json = document.metadata.json(plan_.by); !value && !json.empty() && json != "null")
      if (plan_.is_partitioned) value = std::string(json);
    has_value_ |= value.has_value();
    std::string name = plan_.group_of(value);
    const auto [found, is_new] = index_.try_emplace(plan_.is_partitioned ? value.value_or("") : name, outputs_.size());
    if (is_new) {
      if (outputs_.size() == kMostGroups)
        throw UserError(concat("output.by = \"", plan_.by, "\" has more than ", kMostGroups,
                               " values; each would be a file. Choose another key."),
                        ExitCode::kBadData);
      while (!names_.insert(name).second) name += "-2";  // of values that differ in what names may not hold
      const std::string file = plan_.is_partitioned ? plan_.partition_file_of(value) : plan_.file_of(name);
      fs::create_directories((folder_ / file).parent_path());
      outputs_.push_back(plan_.format == "parquet" ? parquet_output(folder_ / file, "text", plan_.compression)
                                                   : jsonl_output(folder_ / file, "text"));
      tallies_.push_back({name, file});
    }
    return found->second;
  }

  const OutputPlan& plan_;
  bool has_value_ = false;  // whether a document had the key `by`
  std::set<std::string> catalogue_keys_;
  fs::path folder_;
  std::map<std::string, size_t> index_;
  std::set<std::string> names_;
  std::vector<std::unique_ptr<Output>> outputs_;
  std::vector<GroupTally> tallies_;
};

// Token files of each group, and the list that names them with their tokens for weights.
void tokenize(const Recipe& recipe, const fs::path& folder, std::vector<GroupTally>& groups) {
  std::string list;
  for (GroupTally& group : groups) {
    data::PreprocessOptions options;
    options.inputs = {(folder / group.file).string()};
    options.output_prefix = (folder / group.name).string();
    options.append_eod = recipe.output.append_eod;
    options.workers = recipe.workers;
    options.catalogue = group.catalogue;
    const fs::path path = fs::absolute(recipe.output.tokenizer);
    if (path.filename() == "tokenizer.json" || fs::exists(path / "tokenizer.json"))
      options.tokenizer_words = {"--tokenizer-type", "PretrainedFromHF", "--tokenizer-name-or-path", path.string()};
    const data::PreprocessSummary summary = data::preprocess(options, *recipe.tokenizer);
    group.num_tokens = summary.keys.front().num_tokens;
    list += concat(group.num_tokens, " ", group.name, "_text_document ", group.name, "\n");
  }
  write_file_atomically(folder / "train-files.txt", list);
}

// Documents of the last stage into the groups, and what became of all documents into the fates.
void write_documents(const RunPlan& plan, const RunResult& result, Groups& groups, const fs::path& fates_folder) {
  const std::vector<ShardStore> stores = open_shards(plan);
  FateWriter fates(fates_folder);
  Progress progress("write", result.num_shards, Progress::Unit::kItems, "shards");
  for (int64_t shard = 0; shard < result.num_shards; ++shard, progress.advance(1)) {
    std::string lines;
    for (const ShardStore& store : stores) lines += store.read_fates(shard);
    ShardDocuments documents = stores.back().documents(shard);
    for (Document document; documents.next(document);) {
      const auto [output, line] = groups.write(document);
      lines += place_line(document.number, output, line);
    }
    fates.write_shard(lines, stores.back().summary(shard).next_number);
  }
  progress.finish();
  groups.finish();
  fates.finish(plan, result, groups.tallies());
}

// The names of what a finished curation in that folder has made: what another one may replace. Empty where there is
// none.
std::set<std::string> names_made_in(const fs::path& folder) {
  const fs::path report = folder / "report.json";
  if (!fs::exists(report)) return {};
  std::set<std::string> names = {"fates",       "report.json",     "report.md",        "report.html",
                                 "recipe.toml", "train-files.txt", "train-splits.txt", "valid-splits.txt",
                                 kManifest};
  const auto json = parse_json<nlohmann::ordered_json>(read_file(report), report.string());
  read_fields(concat("'", report.string(), "'"), [&] {
    for (const nlohmann::ordered_json& output : json.at("outputs")) {
      names.insert(*fs::path(output.at("file").get<std::string>()).begin());  // of partitions, their folder
      for (const char* end : {".bin", ".idx", ".meta.json"})
        names.insert(concat(output.at("name").get<std::string>(), "_text_document", end));
    }
  });
  return names;
}

// Files and folders of `from` into `to`, in the place of all that a curation has made there.
void move_all(const fs::path& from, const fs::path& to) {
  const std::set<std::string> replaceable = names_made_in(to);
  std::vector<fs::path> strangers;
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const fs::path name = entry.path().filename();
    const bool is_copy = name == "recipe.toml" && fs::exists(to / name) && read_file(to / name) == read_file(entry);
    if (!replaceable.contains(name) && !is_copy && fs::exists(to / name)) strangers.push_back(to / name);
  }
  if (!strangers.empty())
    throw UserError(concat(strangers.front().string(), " was not made by a curation, and an output would replace it: ",
                           "move it away, and the same command finishes"),
                    ExitCode::kCannotCreate);
  const UninterruptedSteps together;
  for (const std::string& name : replaceable)
    if (!fs::exists(from / name)) fs::remove_all(to / name);
  fs::rename(from / "report.json", to / "report.json");  // first: if a kill follows, it says what has been made here
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const fs::path target = to / entry.path().filename();
    fs::remove_all(target);
    fs::rename(entry.path(), target);
  }
  fsync_directory(to);
}

}  // namespace

bool is_finished(const Recipe& recipe) {
  const fs::path folder = recipe.output.folder, report = folder / "report.json";
  std::error_code error;
  if (fs::exists(work_folder(recipe) / "recipe", error) || !fs::exists(report, error)) return false;
  const auto json = parse_json<nlohmann::ordered_json>(read_file(report), report.string());
  return read_fields(concat("'", report.string(), "'"),
                     [&] { return json.value("recipe", "") == recipe.fingerprint(); });
}

namespace {

// Shows by a lock that this process works on the recipe, in a work folder of this recipe. Nothing where the
// others, with whom it would have shared the work, are done with it.
std::optional<FileLock> begin_work(const Recipe& recipe, bool overwrite) {
  const fs::path folder = recipe.output.folder, work = work_folder(recipe);
  const std::string mark = work_mark(recipe);
  fs::create_directories(folder);
  const bool joins = fs::exists(work / "recipe");
  const FileLock beginning = FileLock::take(folder / kFinishLock);
  if (is_finished(recipe) && (joins || !overwrite)) return std::nullopt;
  if (!fs::exists(work / "recipe") || read_file(work / "recipe") != mark) {
    // It is of another recipe, or its removal was interrupted by a kill.
    if (fs::exists(work) && !FileLock::try_take(work / "processes"))
      throw UserError(concat("another process works at another recipe in '", folder.string(),
                             "'. Wait until it has ended, or give another folder."),
                      ExitCode::kCannotCreate);
    fs::remove_all(work);
    fs::create_directories(work);
    write_file_atomically(work / kRecipeCopy, recipe.content);
    write_file_atomically(work / "recipe", mark);
  }
  std::optional<FileLock> at_work = FileLock::try_take(work / "processes", FileLock::Kind::kShared);
  ESPALIER_CHECK(at_work.has_value(), "it is taken alone only by one that begins");
  return at_work;
}

// Of a finished curation, unless somebody has started over, or still reads what others have made: the last one removes
// it.
void remove_work(const fs::path& folder, const fs::path& work) {
  const std::optional<FileLock> lock = FileLock::try_take(folder / kFinishLock);
  if (!lock || fs::exists(work / "recipe")) return;
  if (fs::exists(work) && !FileLock::try_take(work / "processes")) return;
  std::error_code open_elsewhere;
  fs::remove_all(work, open_elsewhere);
  fs::remove(folder / kFinishLock, open_elsewhere);
}

std::vector<GroupTally> groups_of(const nlohmann::ordered_json& report) {
  std::vector<GroupTally> groups;
  for (const nlohmann::ordered_json& output : report.at("outputs"))
    groups.push_back({output.at("name"), output.at("file"), output.at("documents"), output.at("bytes"),
                      output.value("tokens", int64_t{-1})});
  return groups;
}

// The documents, and all that comes of them, into work/out.
void write_outputs(const Recipe& recipe, const RunPlan& plan, MixResult& mix) {
  const fs::path out = plan.work_folder / "out";
  {
    Groups groups(recipe, out);
    write_documents(plan, mix.run, groups, out / "fates");
    mix.groups = groups.tallies();
  }
  if (recipe.tokenizer != nullptr) tokenize(recipe, out, mix.groups);
  mix.report = report_as_json(plan, mix.run, mix.groups);
  if (recipe.mix) mix.report["mix"] = write_blend(*recipe.mix, out, mix.groups);
  mix.report["recipe"] = recipe.fingerprint();
  write_reports(mix.report, out);
  write_file_atomically(out / kRecipeCopy, recipe.content);
  fs::remove_all(fs::path(recipe.output.folder) / "forget.work");  // of the curation that was here
}

}  // namespace

// " (DIFFERENCE)".
std::string how_other(const Recipe& recipe, const fs::path& other) {
  const std::string difference = describe_difference(recipe, other);
  return difference.empty() ? "" : concat(" (", difference, ")");
}

// What is in the way besides a curation: files of somebody else's under names that this one needs.
void check_strangers(const Recipe& recipe, const fs::path& work, Problems& problems) {
  const fs::path folder = recipe.output.folder;
  std::error_code error;
  std::vector<std::string> found;
  const std::string own[] = {"stage-", "pass-", "process", "out", "recipe"};
  for (const fs::directory_entry& entry : fs::directory_iterator(work, error)) {
    const std::string name = entry.path().filename();
    if (std::none_of(std::begin(own), std::end(own), [&](const std::string& start) { return name.starts_with(start); }))
      found.push_back(entry.path().string());
  }
  const std::set<std::string> made = names_made_in(folder);
  for (const InputSource& source : recipe.sources)
    for (const std::string& file : source.files)
      if (made.contains(fs::path(file).filename()) && fs::equivalent(file, folder / fs::path(file).filename(), error))
        problems.add("[[source]] ", source.name, ": ", file, " is an output of the curation in ", folder.string(),
                     ", which this one would replace; give another folder");
  if (!fs::exists(folder / "report.json", error)) {
    std::vector<std::string> names = {"fates", "report.md", "report.html", "train-files.txt", kManifest};
    if (recipe.mix) names.insert(names.end(), {"train-splits.txt", "valid-splits.txt"});
    if (recipe.output.by.empty()) names.push_back(recipe.output.file_of("documents"));
    for (const std::string& name : names)
      if (fs::exists(folder / name, error)) found.push_back((folder / name).string());
  }
  if (!found.empty())
    problems.add("[output] folder ", folder.string(), ": ", found.front(),
                 " was not made by a curation, and would be replaced; move it away, or give another folder");
}

void check_folder(const Recipe& recipe, bool overwrite, Problems& problems) {
  const fs::path folder = recipe.output.folder, work = work_folder(recipe);
  if (recipe.output.folder.empty()) return;
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) {
    problems.add(folder.string(), " is not a folder");
    return;
  }
  check_strangers(recipe, work, problems);
  if (fs::exists(work / "recipe", error)) {
    if (read_file(work / "recipe") != work_mark(recipe) && !overwrite)
      problems.add(work.string(), " holds the work of another recipe, or of other inputs",
                   how_other(recipe, work / kRecipeCopy), ". Continue with those, or start over with --overwrite.");
    return;
  }
  if (fs::exists(folder / "report.json", error) && !overwrite)
    problems.add(folder.string(), " holds a finished curation of another recipe, or of other inputs",
                 how_other(recipe, folder / kRecipeCopy), "; --overwrite replaces it");
}

MixResult make_mix(Recipe& recipe, bool overwrite) {
  const fs::path folder = recipe.output.folder, work = work_folder(recipe);
  MixResult mix;
  if (std::optional<FileLock> at_work = begin_work(recipe, overwrite)) {
    RunPlan plan = plan_of(recipe);
    plan.work_folder = work;
    plan.keeps_work = true;
    mix.run = run(plan, nullptr);
    at_work.reset();  // the work may go once nobody reads it
    const FileLock finishing = FileLock::take(folder / kFinishLock);
    if (fs::exists(work / "recipe")) {
      write_outputs(recipe, plan, mix);
      move_all(work / "out", folder);
      fs::remove(work / "recipe");  // which tells the others that all is done
    }
  } else {
    mix.was_finished = true;
  }
  remove_work(folder, work);
  const fs::path report = folder / "report.json";
  mix.report = parse_json<nlohmann::ordered_json>(read_file(report), report.string());
  mix.groups = read_fields(concat("'", report.string(), "'"), [&] { return groups_of(mix.report); });
  return mix;
}

MixResult try_mix(Recipe& recipe, int64_t most_documents) {
  const fs::path work = fs::path(concat(recipe.output.folder, ".dry-run-", ::getpid()));
  RunPlan plan = plan_of(recipe);
  plan.work_folder = work;
  plan.most_documents = most_documents;
  plan.measures = true;
  MixResult mix;
  std::map<std::string, GroupTally> groups;
  mix.run = run(plan, [&](Document&& document) {
    const std::string name = recipe.output.group_of(document.metadata.text(recipe.output.by));
    GroupTally& group = groups[name];
    group.name = name;
    ++group.num_documents;
    group.bytes += static_cast<int64_t>(document.text.size());
  });
  for (const auto& [name, group] : groups) mix.groups.push_back(group);
  mix.report = report_as_json(plan, mix.run, mix.groups);
  return mix;
}

}  // namespace espalier::curate
