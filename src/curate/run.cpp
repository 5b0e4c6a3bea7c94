#include "curate/run.h"

#include <chrono>
#include <functional>

#include "base/format.h"
#include "base/pending_file.h"
#include "base/progress.h"
#include "curate/ordered_map.h"
#include "curate/shard_store.h"
#include "curate/stage.h"

namespace espalier::curate {
namespace {

// The steps that are made, and where passes cut them.
struct StageRange {
  int first_step = 0;          // the pass that decides, from the second stage on
  int end_step = 0;            // behind the last step
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
  }

  RunResult operator()() {
    const auto start = std::chrono::steady_clock::now();
    for (size_t stage = 0; stage < ranges_.size(); ++stage) run_stage(stage);
    if (plan_.keeps_work && take_ != nullptr) hand_over();
    remove_temporary();
    result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(result_);
  }

 private:
  // What only this run needed: passes' folders, and all of it where nothing is to be gone on from.
  void remove_temporary() {
    passes_.clear();
    for (size_t step = 0; step < steps_.size(); ++step)
      if (steps_[step] == nullptr) std::filesystem::remove_all(folder(concat("pass-", step)));
    if (!plan_.keeps_work && ranges_.size() > 1) std::filesystem::remove_all(plan_.work_folder);
  }

  bool is_last(size_t stage) const { return stage + 1 == ranges_.size(); }
  std::filesystem::path folder(const std::string& name) const { return plan_.work_folder / name; }

  void run_stage(size_t index) {
    const StageRange& range = ranges_[index];
    if (range.digests) make_pass(*range.digests);
    const Pass* const decides = index == 0 ? nullptr : passes_[static_cast<size_t>(range.first_step)].get();
    std::vector<const Step*> steps;
    for (int step = range.first_step + (decides != nullptr); step < range.end_step; ++step)
      steps.push_back(steps_[static_cast<size_t>(step)].get());
    const Stage stage(range.first_step, decides, std::move(steps),
                      range.digests ? passes_[static_cast<size_t>(*range.digests)].get() : nullptr, plan_.measures);
    if (is_last(index) && !plan_.keeps_work) {
      go_through(index, stage, nullptr);
    } else {
      store_ = std::make_unique<ShardStore>(folder(concat("stage-", index)), stage.num_steps());
      go_through(index, stage, store_.get());
      for (int64_t shard = 0; shard < store_->num_shards(); ++shard) {
        add_tallies(range.first_step, store_->summary(shard).tallies);
        result_.input.add(store_->summary(shard).input);
      }
      result_.num_shards = store_->num_shards();
    }
    if (range.digests) finish_pass(*range.digests);
    previous_ = std::move(store_);
  }

  void make_pass(int step) {
    const std::filesystem::path space = folder(concat("pass-", step));
    std::filesystem::remove_all(space);
    std::filesystem::create_directories(space);
    passes_[static_cast<size_t>(step)] =
        plan_.steps[static_cast<size_t>(step)].maker->make_pass({space, plan_.memory_bytes});
  }

  void finish_pass(int step) {
    Pass& pass = *passes_[static_cast<size_t>(step)];
    for (int64_t shard = 0; shard < store_->num_shards(); ++shard) store_->feed(shard, pass);
    pass.finish();
    result_.facts[static_cast<size_t>(step)] = pass.facts();
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
    if (index == 0)
      read_input(stage, store, take);
    else
      read_shards(stage, store, take);
  }

  template <class Take>
  void read_input(const Stage& stage, ShardStore* store, Take take) {
    Progress progress("curate", total_input_bytes(plan_.sources), Progress::Unit::kBytes);
    InputReader reader(plan_.sources);
    const int64_t done =
        store != nullptr && store->num_shards() > 0 ? store->summary(store->num_shards() - 1).next_number : 0;
    const auto next = [&](RawBlock& block) {
      while (reader.next(block)) {
        if (result_.files.empty() || result_.files.back().name != block.file || block.first_line == 1)
          result_.files.push_back({block.file, block.first_number});
        if (plan_.most_documents > 0 && block.first_number >= plan_.most_documents) return false;
        if (plan_.most_documents > 0 &&
            block.first_number + static_cast<int64_t>(block.records.size()) > plan_.most_documents)
          block.records.resize(static_cast<size_t>(plan_.most_documents - block.first_number));
        if (block.first_number >= done) return true;
        progress.advance(block.input_bytes);
      }
      return false;
    };
    const auto work = [&](const RawBlock& block) { return stage.process(plan_.sources, block); };
    map_in_order<RawBlock>(
        plan_.workers, next, [](const RawBlock& block) { return static_cast<int64_t>(block.bytes.size()); }, work,
        [&](BlockResult&& block) {
          progress.advance(block.input_bytes);
          note(progress, block);
          take(std::move(block));
          if (store != nullptr && store->pending_bytes() >= plan_.shard_bytes) store->finish_shard();
        });
    if (store != nullptr && store->has_pending()) store->finish_shard();
    progress.finish();
  }

  // One shard after another; a shard is cut into blocks for the workers.
  template <class Take>
  void read_shards(const Stage& stage, ShardStore* store, Take take) {
    constexpr size_t kDocumentsOfBlock = 256;
    Progress progress("curate", previous_->num_shards(), Progress::Unit::kItems, "shards");
    for (int64_t shard = store == nullptr ? 0 : store->num_shards(); shard < previous_->num_shards(); ++shard) {
      std::vector<Document> documents = previous_->read_documents(shard);
      const int64_t next_number = previous_->summary(shard).next_number;
      size_t at = 0;
      const auto next = [&](std::vector<Document>& block) {
        if (at == documents.size()) return false;
        const size_t end = std::min(documents.size(), at + kDocumentsOfBlock);
        block.assign(std::make_move_iterator(documents.begin() + static_cast<int64_t>(at)),
                     std::make_move_iterator(documents.begin() + static_cast<int64_t>(end)));
        at = end;
        return true;
      };
      const auto work = [&](const std::vector<Document>& block) { return stage.process(block, next_number); };
      map_in_order<std::vector<Document>>(
          plan_.workers, next, [](const auto&) { return int64_t{1} << 20; }, work, take);
      if (store != nullptr) {
        if (!store->has_pending())
          take(stage.process(std::vector<Document>(), next_number));  // a shard of which nothing is left
        store->finish_shard();
      }
      progress.advance(1);
    }
    progress.finish();
  }

  // From the shards of the last stage to the taker.
  void hand_over() {
    for (int64_t shard = 0; shard < previous_->num_shards(); ++shard)
      for (Document& document : previous_->read_documents(shard)) take_(std::move(document));
  }

  void note(Progress& progress, const BlockResult& block) {
    num_documents_ += block.input.num_documents;
    num_kept_ += static_cast<int64_t>(block.documents.size());
    progress.set_note(concat(format_count(num_documents_), " documents, ", format_count(num_kept_), " kept"));
  }

  const RunPlan& plan_;
  const DocumentTaker& take_;
  std::vector<std::unique_ptr<Step>> steps_;  // null: a pass
  std::vector<std::unique_ptr<Pass>> passes_;
  std::vector<StageRange> ranges_;
  std::unique_ptr<ShardStore> store_, previous_;
  RunResult result_;
  int64_t num_documents_ = 0, num_kept_ = 0;
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

RunResult run(const RunPlan& plan, const DocumentTaker& take) { return Run(plan, take)(); }

}  // namespace espalier::curate
