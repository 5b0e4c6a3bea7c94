// The power fails at any moment of saving and removing: every state in which the disk may then be has the newest
// checkpoint whole, and no older one than the last that was reported as saved.
//
// What may be on the disk is what POSIX promises and no more. Of a file: all that was written before its last fsync,
// and any of the later writes. Of a folder: its names as after its last fsync, or as after any later change of them, in
// the order of these changes, which every journal keeps. Files and folders are independent of each other: the names in
// a folder may exist before the data of the files, and a new file in it although its own name in its parent is not.
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include "base/hash.h"
#include "store/internal/test_folder.h"
#include "store/internal/test_system.h"
#include "store/prune.h"
#include "store/run_folder.h"
#include "store/step_reader.h"

namespace espalier::store {
namespace power_cut_test {

namespace fs = std::filesystem;
using test::SmallCheckpoint;
using test::SystemCall;

struct Node;
using NodePointer = std::shared_ptr<Node>;

// A change of a file's bytes, or of one name in a folder.
struct Change {
  // Of a file: `bytes` at `offset`, or its new size.
  int64_t offset = 0;
  std::string bytes;
  int64_t size = -1;
  // Of a folder: `name` is `node` now (none: it is gone), and `old_name` is gone.
  std::string name, old_name;
  NodePointer node;
};

struct Node {
  bool is_folder = false;
  std::vector<Change> changes;
  size_t num_durable = 0;  // the first of them
  // Of a file: what it may hold, as of so many changes.
  mutable std::vector<std::string> contents;
  mutable size_t of_changes = SIZE_MAX, of_durable = SIZE_MAX;
};

// The file system below one folder, as the calls made it.
class Disk {
 public:
  explicit Disk(fs::path root) : root_path_(std::move(root)), root_(std::make_shared<Node>(Node{.is_folder = true})) {}

  void note(const SystemCall& call) {
    const std::string name = call.name;
    if (name == "open") {
      if (call.creates && find(call.path) == nullptr) put(call.path, std::make_shared<Node>());
    } else if (name == "mkdir") {
      put(call.path, std::make_shared<Node>(Node{.is_folder = true}));
    } else if (name == "pwrite" || name == "write") {
      if (const NodePointer file = find(call.path))
        file->changes.push_back(
            {.offset = call.offset,
             .bytes = std::string(static_cast<const char*>(call.data), static_cast<size_t>(call.bytes))});
    } else if (name == "fallocate" || name == "ftruncate") {
      if (const NodePointer file = find(call.path)) file->changes.push_back({.size = call.offset + call.bytes});
    } else if (name == "fsync") {
      if (const NodePointer node = find(call.path)) node->num_durable = node->changes.size();
    } else if (name == "rename") {
      const NodePointer folder = find(fs::path(call.path).parent_path());
      ASSERT_EQ(fs::path(call.path).parent_path(), fs::path(call.target).parent_path()) << "a case this test lacks";
      const NodePointer moved = find(call.path);
      folder->changes.push_back(
          {.name = fs::path(call.target).filename(), .old_name = fs::path(call.path).filename(), .node = moved});
    } else if (name == "remove") {
      put(call.path, nullptr);
    }
    ++num_calls_;
  }

  // What a disk holds: every file's content by its path, nothing for a folder.
  using State = std::map<fs::path, std::optional<std::string>>;

  // One of the states that the disk may be in now; `choose(n)` is one of 0 ... n.
  template <class Choose>
  State state(Choose& choose) const {
    State state;
    add_folder(*root_, "", choose, state);
    return state;
  }
  int64_t num_calls() const { return num_calls_; }

 private:
  using Names = std::map<std::string, NodePointer>;

  static Names names_after(const Node& folder, size_t num_changes) {
    Names names;
    for (size_t at = 0; at < num_changes; ++at) {
      const Change& change = folder.changes[at];
      names.erase(change.old_name);
      if (change.node == nullptr)
        names.erase(change.name);
      else
        names[change.name] = change.node;
    }
    return names;
  }

  NodePointer find(const fs::path& path) const {
    NodePointer node = root_;
    for (const fs::path& part : path.lexically_relative(root_path_)) {
      if (part == ".") continue;
      const Names names = names_after(*node, node->changes.size());
      const auto found = names.find(part.string());
      if (found == names.end()) return nullptr;
      node = found->second;
    }
    return node;
  }
  void put(const fs::path& path, NodePointer node) {
    const NodePointer folder = find(path.parent_path());
    ASSERT_NE(folder, nullptr) << path;
    folder->changes.push_back({.name = path.filename(), .node = std::move(node)});
  }

  template <class Choose>
  static void add_folder(const Node& folder, const fs::path& path, Choose& choose, State& state) {
    const size_t later = folder.changes.size() - folder.num_durable;
    for (const auto& [name, node] : names_after(folder, folder.num_durable + choose(later))) {
      if (node->is_folder) {
        state[path / name] = std::nullopt;
        add_folder(*node, path / name, choose, state);
      } else {
        const std::vector<std::string>& contents = contents_of(*node);
        state[path / name] = contents[choose(contents.size() - 1)];
      }
    }
  }

  // All that a file may hold, each once: first what is promised, last all that was written.
  static const std::vector<std::string>& contents_of(const Node& file) {
    if (file.of_changes == file.changes.size() && file.of_durable == file.num_durable) return file.contents;
    file.of_changes = file.changes.size(), file.of_durable = file.num_durable;
    const size_t later = file.changes.size() - file.num_durable;
    EXPECT_LE(later, 12u) << "too many writes without fsync to look at all their subsets";
    std::set<std::string> seen;
    file.contents.clear();
    for (size_t subset = 0; subset < size_t{1} << std::min<size_t>(later, 12); ++subset) {
      std::string content = content_of(file, subset);
      if (seen.insert(content).second) file.contents.push_back(std::move(content));
    }
    return file.contents;
  }
  // With those of the changes after the last fsync whose bit is set.
  static std::string content_of(const Node& file, size_t subset) {
    std::string content;
    for (size_t at = 0; at < file.changes.size(); ++at) {
      const Change& change = file.changes[at];
      if (at >= file.num_durable && (subset >> (at - file.num_durable) & 1) == 0) continue;
      if (change.size >= 0) {
        content.resize(static_cast<size_t>(change.size));
        continue;
      }
      const auto end = static_cast<size_t>(change.offset) + change.bytes.size();
      if (content.size() < end) content.resize(end);
      content.replace(static_cast<size_t>(change.offset), change.bytes.size(), change.bytes);
    }
    return content;
  }

  fs::path root_path_;
  NodePointer root_;
  int64_t num_calls_ = 0;
};

// All sequences of choices, one after the other: call it until next() is false.
class EveryChoice {
 public:
  size_t operator()(size_t most) {
    if (at_ == taken_.size()) taken_.push_back({0, most});
    return taken_[at_++].first;
  }
  bool next() {
    at_ = 0;
    while (!taken_.empty() && taken_.back().first == taken_.back().second) taken_.pop_back();
    if (taken_.empty()) return false;
    ++taken_.back().first;
    return true;
  }

 private:
  std::vector<std::pair<size_t, size_t>> taken_;
  size_t at_ = 0;
};

class PowerCut : public test::TestFolder {
 protected:
  enum class Looks { kSome, kAll };

  // After each call from here on states of the disk are looked at. They hold at least step `saved_`.
  void watch(Looks looks) {
    fs::create_directories(folder_ / "disk");
    disk_ = std::make_unique<Disk>(folder_ / "disk");
    test::system_calls().before = [](const SystemCall&) { return 0; };
    test::system_calls().after = [this, looks](const SystemCall& call) {
      const std::lock_guard lock(mutex_);
      if (HasFailure() || !(call.path + "/").starts_with((folder_ / "disk").string() + "/")) return;
      disk_->note(call);
      const std::string when = concat("after ", call.name, " of ", call.path);
      looks == Looks::kAll ? look_at_all(when) : look_at_some(when);
    };
  }

  void look_at_some(const std::string& when) {
    look_at(when + ", nothing more than promised", [](size_t) { return size_t{0}; });
    look_at(when + ", all of it", [](size_t most) { return most; });
    for (int trial = 0; trial < 6; ++trial) {
      const uint64_t share = random_() % 5;  // of the changes, in quarters, that are on the disk
      look_at(when + ", some of it", [&](size_t most) {
        size_t chosen = 0;
        for (size_t at = 0; at < most; ++at) chosen += random_() % 4 < share ? 1 : 0;
        return most == 1 ? chosen : random_() % 2 == 0 ? chosen : random_() % (most + 1);
      });
    }
  }

  void look_at_all(const std::string& when) {
    EveryChoice every;
    do {
      look_at(when, every);
      ASSERT_LE(++num_choices_, 20'000'000) << "no small case";
    } while (!HasFailure() && every.next());
  }

  // A state that was looked at before, with no more to hold, is known.
  template <class Choose>
  void look_at(const std::string& when, Choose&& choose) {
    const Disk::State state = disk_->state(choose);
    ++num_states_;
    uint64_t known = hash64(std::to_string(saved_));
    for (const auto& [path, content] : state)
      known = hash64(content ? *content : "a folder", hash64(path.string(), known));
    if (!known_.insert(known).second) return;
    const fs::path place = folder_ / "state", run = place / "run";
    fs::remove_all(place);
    fs::create_directories(place);
    for (const auto& [path, content] : state)
      content ? test::write_text(place / path, *content) : static_cast<void>(fs::create_directories(place / path));
    const RunListing listing = list_steps(run);
    for (const StepEntry& entry : listing.complete)
      ASSERT_EQ(verify_step(entry.folder, 1, /*weights_only=*/false), std::vector<std::string>{})
          << when << ": " << entry.folder;
    if (saved_ > 0) {
      ASSERT_FALSE(listing.complete.empty()) << when;
      ASSERT_GE(listing.complete.back().step, saved_) << when;
    }
    newest_.insert(listing.complete.empty() ? 0 : listing.complete.back().step);
  }

  void save(int64_t step, int64_t rows = 1300) {
    SmallCheckpoint(static_cast<uint32_t>(step), rows).save(folder_ / "disk/run", step);
    saved_ = step;
  }
  // By several writers, which are threads here.
  void save_together(int64_t step, int64_t num_writers, int64_t rows, int64_t block_bytes) {
    const fs::path run = folder_ / "disk/run";
    begin_step(run, step);
    const SmallCheckpoint checkpoint(static_cast<uint32_t>(step), rows);
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < num_writers; ++rank)
      threads.emplace_back([&, rank] {
        const Writers writers{.rank = rank, .count = num_writers};
        write_step(run, test::content_of(checkpoint, step, block_bytes, writers), writers);
      });
    for (std::thread& thread : threads) thread.join();
    saved_ = step;
  }
  void end_and_record() {
    test::system_calls() = {};
    RecordProperty("calls", static_cast<int>(disk_->num_calls()));
    RecordProperty("states", static_cast<int>(num_states_));
    RecordProperty("different", static_cast<int>(known_.size()));
    std::printf("%ld calls, %ld states, %zu of them different\n", disk_->num_calls(), num_states_, known_.size());
  }

  std::unique_ptr<Disk> disk_;
  std::mutex mutex_;
  std::mt19937_64 random_{20261124};
  int64_t saved_ = 0, num_states_ = 0, num_choices_ = 0;
  std::set<int64_t> newest_;
  std::set<uint64_t> known_;
};

TEST_F(PowerCut, LeavesTheOldCheckpointOrTheNewOne) {
  const test::SystemCallsScope scope;
  watch(Looks::kSome);
  save(1);
  save(2);
  remove_step_folder({1, folder_ / "disk/run/step_00000001"});
  save(3);
  end_and_record();
  EXPECT_GE(disk_->num_calls(), 120) << "too few calls were seen";
  EXPECT_GE(num_states_, 8 * 120);
  EXPECT_EQ(newest_, (std::set<int64_t>{0, 1, 2, 3}));
}

TEST_F(PowerCut, InEveryStateOfASmallCheckpoint) {
  const test::SystemCallsScope scope;
  watch(Looks::kAll);
  save(1, /*rows=*/3);
  save(2, /*rows=*/3);
  remove_step_folder({1, folder_ / "disk/run/step_00000001"});
  end_and_record();
  EXPECT_GE(disk_->num_calls(), 80) << "too few calls were seen";
  EXPECT_EQ(newest_, (std::set<int64_t>{0, 1, 2}));
}

// Each of whole pages and of ends of pages that the first writes for the others.
TEST_F(PowerCut, OfSeveralWriters) {
  const test::SystemCallsScope scope;
  watch(Looks::kSome);
  for (const int64_t step : {1, 2}) save_together(step, /*num_writers=*/4, /*rows=*/1300, /*block_bytes=*/5000);
  end_and_record();
  EXPECT_GE(disk_->num_calls(), 120) << "too few calls were seen";
  EXPECT_EQ(newest_, (std::set<int64_t>{0, 1, 2}));
}

TEST_F(PowerCut, InEveryStateOfASmallCheckpointOfTwoWriters) {
  const test::SystemCallsScope scope;
  watch(Looks::kAll);
  save_together(1, /*num_writers=*/2, /*rows=*/3, /*block_bytes=*/16);
  save_together(2, /*num_writers=*/2, /*rows=*/3, /*block_bytes=*/16);
  end_and_record();
  EXPECT_EQ(newest_, (std::set<int64_t>{0, 1, 2}));
}

}  // namespace power_cut_test
}  // namespace espalier::store
