#include "curate/run.h"

#include <chrono>
#include <functional>
#include <map>
#include <thread>

#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/pending_tree.h"
#include "base/progress.h"
#include "curate/ordered_map.h"
#include "curate/pass_work.h"
#include "curate/shard_store.h"
#include "curate/stage.h"

namespace espalier::curate {
namespace {

namespace fs = std::filesystem;

// The steps that are made, and where passes cut them.
struct StageRange {
  int first_step = 0;          // the pass that decides, from the second stage on
  int end_step = 0;            // after the last step
  std::optional<int> digests;  // the pass that the stage ends with: the first step of the next
};

std::vector<StageRange> cut(const std::vector<std::unique_ptr<Step>>& steps) {
  std::vector<StageRange> stages(1);
  for (int index = 0; index < static_cast<int>(steps.size()); ++index) {
    if (steps[static_cast<size_t>(index)] != nullptr) continue;
    stages.back().end_step = index;
    stages.back().digests = index;
    stages.push_back({index, 0, {}});
  }
  stages.back().end_step = static_cast<int>(steps.size());
  return stages;
}

class Run {
 public:
  Run(const RunPlan& plan, const DocumentTaker& take) : plan_(plan), take_(take) {
    for (const PlannedStep& step : plan.steps) steps_.push_back(step.maker->make_step());
    passes_.resize(steps_.size());
    result_.steps.resize(steps_.size());
    result_.facts.resize(steps_.size());
    ranges_ = cut(steps_);
    if (const std::string problem = order_problem(plan.steps); !problem.empty())
      throw UserError(problem, ExitCode::kUsage);
  }

  RunResult operator()() {
    const auto start = std::chrono::steady_clock::now();
    if (plan_.keeps_work) {
      fs::create_directories(plan_.work_folder);
    } else if (ranges_.size() > 1) {
      remove_leftovers();
      temporary_.emplace(plan_.work_folder);
    }
    for (size_t stage = 0; stage < ranges_.size(); ++stage) run_stage(stage);
    for (size_t step = 0; step < steps_.size(); ++step)
      if (steps_[step] != nullptr) doubt(static_cast<int>(step), steps_[step]->doubt());
    for (size_t step = 0; step < steps_.size(); ++step)
      if (const StepTally& tally = result_.steps[step]; tally.num_in > 0 && tally.num_out == 0)
        doubt(static_cast<int>(step), "nothing is left of " + format_counted(tally.num_in, "document"));
    if (plan_.keeps_work && take_ != nullptr) hand_over();
    remove_temporary();
    result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(result_);
  }

 private:
  // What a run that is not to be resumed has left: of this one at its end, or of one that was killed.
  void remove_leftovers() {
    for (size_t stage = 0; stage < ranges_.size(); ++stage) fs::remove_all(folder(concat("stage-", stage)));
    for (size_t step = 0; step < steps_.size(); ++step) fs::remove_all(pass_folder(static_cast<int>(step)));
  }
  // Whatever else is in the folder is somebody else's.
  void remove_temporary() {
    passes_.clear();
    if (!plan_.keeps_work) remove_leftovers();
    temporary_.reset();
  }

  bool is_last(size_t stage) const { return stage + 1 == ranges_.size(); }
  fs::path folder(const std::string& name) const { return plan_.work_folder / name; }

  void run_stage(size_t index) {
    const StageRange& range = ranges_[index];
    if (range.digests)
      passes_[static_cast<size_t>(*range.digests)] =
          plan_.steps[static_cast<size_t>(*range.digests)].maker->make_pass();
    const Pass* const decides = index == 0 ? nullptr : passes_[static_cast<size_t>(range.first_step)].get();
    std::vector<const Step*> steps;
    for (int step = range.first_step + (decides != nullptr); step < range.end_step; ++step)
      steps.push_back(steps_[static_cast<size_t>(step)].get());
    const Stage stage(range.first_step, decides, std::move(steps),
                      range.digests ? passes_[static_cast<size_t>(*range.digests)].get() : nullptr, plan_.measures);
    if (is_last(index) && !plan_.keeps_work) {
      go_through(index, stage, nullptr);
    } else {
      store_ = std::make_unique<ShardStore>(folder(concat("stage-", index)), stage.num_steps(),
                                            stage.digests() == nullptr ? 0 : stage.digests()->num_parts());
      go_through(index, stage, store_.get());
      for (int64_t shard = 0; shard < result_.num_shards; ++shard) {
        const ShardSummary summary = store_->summary(shard);
        if (index == 0) check_input(shard, summary);
        add_tallies(range.first_step, summary.tallies);
        result_.input.add(summary.input);
      }
    }
    if (decides != nullptr) end_pass(range.first_step);
    if (range.digests) finish_pass(*range.digests);
    previous_ = std::move(store_);
  }

  // A shard may have been made long ago, or by another process.
  void check_input(int64_t shard, const ShardSummary& summary) const {
    if (summary.input_hash == input_hashes_[static_cast<size_t>(shard)]) return;
    throw UserError(concat("the inputs have changed since the run began: of the records before number ",
                           summary.next_number, " shard ", shard, " of '", plan_.work_folder.string(),
                           "' was made of other bytes. Restore them, or begin anew with --overwrite."),
                    ExitCode::kBadData);
  }

  fs::path pass_folder(int step) const { return folder(concat("pass-", step)); }

  void finish_pass(int step) {
    Pass& pass = *passes_[static_cast<size_t>(step)];
    PassWork work(pass_folder(step), plan_.steps[static_cast<size_t>(step)].name, plan_.workers, plan_.memory_bytes);
    pass.open(work.make(pass, [&](int64_t part, PassPart& into) {
      for (int64_t shard = 0; shard < result_.num_shards; ++shard) store_->feed(shard, part, into);
    }));
    result_.facts[static_cast<size_t>(step)] = pass.facts();
  }

  // Nobody asks it again: its files need not stay mapped.
  void end_pass(int step) {
    std::unique_ptr<Pass>& pass = passes_[static_cast<size_t>(step)];
    if (result_.steps[static_cast<size_t>(step)].num_in > 0) doubt(step, pass->doubt());
    pass.reset();
    if (!plan_.keeps_work) fs::remove_all(pass_folder(step));
  }

  void doubt(int step, const std::string& text) const {
    if (!text.empty()) log_warning("step ", step + 1, ", ", plan_.steps[static_cast<size_t>(step)].name, ": ", text);
  }

  void add_tallies(int first_step, const std::vector<StepTally>& tallies) {
    for (size_t step = 0; step < tallies.size(); ++step)
      result_.steps[static_cast<size_t>(first_step) + step].add(tallies[step]);
  }

  // Into `store`, where there is one, else to the taker.
  void go_through(size_t index, const Stage& stage, ShardStore* store) {
    const auto take = [&](BlockResult&& block) {
      if (store == nullptr) {
        result_.input.add(block.input);
        add_tallies(stage.first_step(), block.tallies);
        for (Document& document : block.documents) take_(std::move(document));
      } else {
        store->add(std::move(block));
      }
    };
    do {
      if (index == 0)
        read_input(stage, store, take);
      else
        read_shards(stage, store, take);
    } while (store != nullptr && !wait_for_others(*store));
  }

  // False where a shard is left to be made: its process has ended without completing it.
  bool wait_for_others(const ShardStore& store) {
    bool told = false;
    for (int64_t left; (left = store.num_incomplete(result_.num_shards)) > 0;) {
      for (int64_t shard = 0; shard < result_.num_shards; ++shard)
        if (store.claim(shard)) return false;
      if (!told) log_info("waiting for ", format_counted(left, "shard"), " that other processes are making");
      told = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
    return true;
  }

  struct InputBlock {
    RawBlock raw;
    int64_t shard = 0;
    bool ends_shard = false;
    std::string input_hash;  // where it ends the shard
  };

  // The next block that this process has to go through.
  bool next_block(InputReader& reader, ShardStore* store, Progress& progress, InputBlock& block) {
    while (reader.next(block.raw)) {
      RawBlock& raw = block.raw;
      if (result_.files.empty() || result_.files.back().name != raw.file || raw.first_line == 1)
        result_.files.push_back({raw.file, raw.first_number});
      if (plan_.most_documents > 0 && raw.first_number >= plan_.most_documents) return false;
      if (plan_.most_documents > 0 &&
          raw.first_number + static_cast<int64_t>(raw.records.size()) > plan_.most_documents)
        raw.records.resize(static_cast<size_t>(plan_.most_documents - raw.first_number));
      if (store == nullptr) return true;
      if (shard_is_new_)
        if (std::optional<FileLock> claim = store->claim(next_shard_)) claims_.emplace(next_shard_, std::move(*claim));
      block.shard = next_shard_;
      bytes_of_shard_ += raw.input_bytes;
      shard_hash_->update(raw.bytes.data(), raw.bytes.size());
      shard_hash_->update(&raw.skipped_bytes, sizeof raw.skipped_bytes);
      shard_is_new_ = block.ends_shard = bytes_of_shard_ >= plan_.shard_bytes;
      if (block.ends_shard) end_shard(block.input_hash);
      if (claims_.contains(block.shard)) return true;
      progress.advance(raw.input_bytes);
    }
    return false;
  }

  void end_shard(std::string& input_hash) {
    input_hash = hex64(shard_hash_->digest());
    input_hashes_.push_back(input_hash);
    shard_hash_.emplace();
    ++next_shard_;
    bytes_of_shard_ = 0;
  }

  template <class Take>
  void read_input(const Stage& stage, ShardStore* store, Take take) {
    Progress progress("curate", total_input_bytes(plan_.sources), Progress::Unit::kBytes);
    InputReader reader(plan_.sources);
    result_.files.clear();
    next_shard_ = bytes_of_shard_ = 0;
    shard_is_new_ = true;
    shard_hash_.emplace();
    input_hashes_.clear();
    struct Done {
      BlockResult result;
      int64_t shard;
      bool ends_shard;
      std::string input_hash;
    };
    const auto finish = [&](int64_t shard, const std::string& input_hash) {
      store->finish_shard(shard, input_hash);
      claims_.erase(shard);
    };
    map_in_order<InputBlock>(
        plan_.workers, [&](InputBlock& block) { return next_block(reader, store, progress, block); },
        [](const InputBlock& block) {
          constexpr size_t kBytesOfDocument =
              512;  // what it takes beside its text while it waits, with fate and digest
          return static_cast<int64_t>(block.raw.bytes.size() + block.raw.records.size() * kBytesOfDocument);
        },
        [&](const InputBlock& block) {
          return Done{stage.process(plan_.sources, block.raw), block.shard, block.ends_shard, block.input_hash};
        },
        [&](Done&& done) {
          progress.advance(done.result.input_bytes);
          note(progress, done.result);
          take(std::move(done.result));
          if (store != nullptr && done.ends_shard) finish(done.shard, done.input_hash);
        });
    if (!shard_is_new_) {  // the last one
      const int64_t last = next_shard_;
      std::string input_hash;
      end_shard(input_hash);
      if (store != nullptr && store->has_pending()) finish(last, input_hash);
    }
    result_.num_shards = next_shard_;
    progress.finish();
  }

  // One shard after another; a shard is cut into blocks for the workers.
  template <class Take>
  void read_shards(const Stage& stage, ShardStore* store, Take take) {
    constexpr size_t kDocumentsOfBlock = 256;
    Progress progress("curate", result_.num_shards, Progress::Unit::kItems, "shards");
    for (int64_t shard = 0; shard < result_.num_shards; ++shard, progress.advance(1)) {
      const std::optional<FileLock> claim = store == nullptr ? std::nullopt : store->claim(shard);
      if (store != nullptr && !claim) continue;
      ShardDocuments documents = previous_->documents(shard);
      const int64_t next_number = previous_->summary(shard).next_number;
      const auto next = [&](std::vector<Document>& block) {
        for (Document document; block.size() < kDocumentsOfBlock && documents.next(document);)
          block.push_back(std::move(document));
        return !block.empty();
      };
      const auto work = [&](const std::vector<Document>& block) { return stage.process(block, next_number); };
      map_in_order<std::vector<Document>>(
          plan_.workers, next, [](const auto&) { return int64_t{1} << 20; }, work, take);
      if (store == nullptr) continue;
      if (!store->has_pending())
        store->add(stage.process(std::vector<Document>(), next_number));  // a shard of which nothing is left
      store->finish_shard(shard);
    }
    progress.finish();
  }

  // From the shards of the last stage to the taker.
  void hand_over() {
    for (int64_t shard = 0; shard < result_.num_shards; ++shard) {
      ShardDocuments documents = previous_->documents(shard);
      for (Document document; documents.next(document);) take_(std::move(document));
    }
  }

  void note(Progress& progress, const BlockResult& block) {
    num_documents_ += block.input.num_documents;
    num_kept_ += static_cast<int64_t>(block.documents.size());
    languages_.add(block.languages);
    const std::string shares = languages_.shares();
    progress.set_note(concat(format_count(num_documents_), " documents, ", format_count(num_kept_), " kept",
                             shares.empty() ? "" : "; ", shares));
  }

  const RunPlan& plan_;
  const DocumentTaker& take_;
  std::vector<std::unique_ptr<Step>> steps_;  // null: a pass
  std::vector<std::unique_ptr<Pass>> passes_;
  std::vector<StageRange> ranges_;
  std::unique_ptr<ShardStore> store_, previous_;
  RunResult result_;
  int64_t num_documents_ = 0, num_kept_ = 0;
  LanguageTally languages_;
  std::optional<PendingTree> temporary_;  // the work folder, where nothing is to be resumed
  // Of the input while it is read.
  int64_t next_shard_ = 0, bytes_of_shard_ = 0;
  bool shard_is_new_ = true;
  std::optional<Hasher> shard_hash_;       // of the shard that is being read
  std::vector<std::string> input_hashes_;  // of the shards before it
  std::map<int64_t, FileLock> claims_;
};

}  // namespace

std::vector<ShardStore> open_shards(const RunPlan& plan) {
  std::vector<std::unique_ptr<Step>> steps;
  for (const PlannedStep& step : plan.steps) steps.push_back(step.maker->make_step());
  std::vector<ShardStore> stores;
  for (const StageRange& range : cut(steps))
    stores.emplace_back(plan.work_folder / concat("stage-", stores.size()),
                        static_cast<size_t>(range.end_step - range.first_step));
  return stores;
}

std::string order_problem(const std::vector<PlannedStep>& steps) {
  const PlannedStep* splits = nullptr;
  for (const PlannedStep& step : steps) {
    if (splits != nullptr && step.maker->make_pass() != nullptr)
      return concat("the step ", splits->name, " may cut documents into pieces, and ", step.name,
                    ", which has to see all documents first, comes after it; put ", step.name, " before ",
                    splits->name);
    if (step.maker->may_split()) splits = &step;
  }
  return "";
}

RunResult run(const RunPlan& plan, const DocumentTaker& take) { return Run(plan, take)(); }

}  // namespace espalier::curate
