#include "curate/mix.h"

#include <map>

#include "base/file.h"
#include "base/format.h"
#include "base/pending_file.h"
#include "curate/fates.h"
#include "data/preprocess.h"

namespace espalier::curate {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostGroups = 1000;

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

// What a file may be called: letters, digits, and few other characters.
std::string file_name_of(const std::string& value) {
  std::string name;
  for (const char c : value) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    name += plain || (c == '.' && !name.empty()) ? c : '_';
  }
  return name.empty() ? "unknown" : name;
}

// The outputs, one for each group, in the order in which they were first needed.
class Groups {
 public:
  Groups(const OutputPlan& plan, fs::path folder) : plan_(plan), folder_(std::move(folder)) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  // The index of the output and the line there, from 1.
  std::pair<size_t, int64_t> write(const Document& document) {
    const size_t index = index_of(document);
    outputs_[index]->write(document);
    tallies_[index].bytes += static_cast<int64_t>(document.text.size());
    return {index, ++tallies_[index].num_documents};
  }
  void finish() {
    for (const auto& output : outputs_) {
      output->prepare();
      output->move_into_place();
    }
    outputs_.clear();
  }
  std::vector<GroupTally>& tallies() { return tallies_; }

 private:
  size_t index_of(const Document& document) {
    const std::string name =
        plan_.by.empty() ? "documents" : file_name_of(document.metadata.text(plan_.by).value_or("unknown"));
    const auto [found, is_new] = index_.try_emplace(name, outputs_.size());
    if (is_new) {
      if (outputs_.size() == kMostGroups)
        throw UserError(concat("output.by = \"", plan_.by, "\" has more than ", kMostGroups,
                               " values; each would be a file. Choose another key."),
                        ExitCode::kBadData);
      const std::string file = name + ".jsonl" + (plan_.compression == "none" ? "" : "." + plan_.compression);
      outputs_.push_back(jsonl_output(folder_ / file, "text"));
      tallies_.push_back({name, file});
    }
    return found->second;
  }

  const OutputPlan& plan_;
  fs::path folder_;
  std::map<std::string, size_t> index_;
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
  for (int64_t shard = 0; shard < result.num_shards; ++shard) {
    std::string lines;
    for (const ShardStore& store : stores) lines += store.read_fates(shard);
    for (const Document& document : stores.back().read_documents(shard)) {
      const auto [output, line] = groups.write(document);
      lines += place_line(document.number, output, line);
    }
    fates.write_shard(lines, stores.back().summary(shard).next_number);
  }
  groups.finish();
  fates.finish(plan, result, groups.tallies());
}

// Files and folders of `from` into `to`, in the place of what is there.
void move_all(const fs::path& from, const fs::path& to) {
  const UninterruptedSteps together;
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    const fs::path target = to / entry.path().filename();
    fs::remove_all(target);
    fs::rename(entry.path(), target);
  }
  fsync_directory(to);
}

}  // namespace

void check_folder(const Recipe& recipe, bool overwrite, Problems& problems) {
  const fs::path folder = recipe.output.folder, work = work_folder(recipe);
  if (recipe.output.folder.empty()) return;
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error)) {
    problems.add(folder.string(), " is no folder");
    return;
  }
  if (fs::exists(work / "recipe", error)) {
    if (read_file(work / "recipe") != recipe.fingerprint() && !overwrite)
      problems.add(work.string(), " holds the work of another recipe, or of other inputs. Go on with those, or begin ",
                   "anew with --overwrite.");
    return;
  }
  if (fs::exists(folder / "report.json", error) && !overwrite)
    problems.add(folder.string(), " holds a finished curation; --overwrite makes it anew");
}

MixResult make_mix(Recipe& recipe) {
  const fs::path folder = recipe.output.folder, work = work_folder(recipe);
  const std::string fingerprint = recipe.fingerprint();
  std::error_code error;
  if (fs::exists(work / "recipe", error) && read_file(work / "recipe") != fingerprint) fs::remove_all(work);
  fs::create_directories(work);
  write_file_atomically(work / "recipe", fingerprint);
  RunPlan plan = plan_of(recipe);
  plan.work_folder = work;
  plan.keeps_work = true;
  MixResult mix;
  mix.run = run(plan, nullptr);
  const fs::path out = work / "out";
  {
    Groups groups(recipe.output, out);
    write_documents(plan, mix.run, groups, out / "fates");
    mix.groups = groups.tallies();
  }
  if (recipe.tokenizer != nullptr) tokenize(recipe, out, mix.groups);
  mix.report = report_as_json(plan, mix.run, mix.groups);
  write_reports(mix.report, out);
  write_file_atomically(out / "recipe.toml", recipe.content);
  fs::remove_all(folder / "forget.work");  // of the curation that was here
  move_all(out, folder);
  fs::remove_all(work);
  return mix;
}

MixResult try_mix(Recipe& recipe, int64_t most_documents) {
  const fs::path work = fs::path(recipe.output.folder + ".dry-run");
  RunPlan plan = plan_of(recipe);
  plan.work_folder = work;
  plan.most_documents = most_documents;
  plan.measures = true;
  MixResult mix;
  std::map<std::string, GroupTally> groups;
  mix.run = run(plan, [&](Document&& document) {
    const std::string name = recipe.output.by.empty()
                                 ? "documents"
                                 : file_name_of(document.metadata.text(recipe.output.by).value_or("unknown"));
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
