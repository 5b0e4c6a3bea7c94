// The power fails at any moment of saving and removing: every state in which the disk may then be has the newest
// checkpoint whole, and no older one than the last that was reported as saved.
//
// What may be on the disk is what POSIX promises and no more. Of a file: all that was written before its last fsync,
// and any of the later writes. Of a folder: its names as after its last fsync, or as after any later change of them, in
// the order of these changes, which every journal keeps. Files and folders are independent of each other: the names in
// a folder may exist before the data of the files, and a new file in it although its own name in its parent is not.
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>

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

  // Any of the states that the disk may be in now; `choose(n)` is one of 0 ... n.
  template <class Choose>
  void materialize(const fs::path& target, const Choose& choose) const {
    materialize_folder(*root_, target, choose);
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
  static void materialize_folder(const Node& folder, const fs::path& target, const Choose& choose) {
    fs::create_directories(target);
    const size_t later = folder.changes.size() - folder.num_durable;
    for (const auto& [name, node] : names_after(folder, folder.num_durable + choose(later))) {
      if (node->is_folder)
        materialize_folder(*node, target / name, choose);
      else
        test::write_text(target / name, content_of(*node, choose));
    }
  }
  template <class Choose>
  static std::string content_of(const Node& file, const Choose& choose) {
    std::string content;
    for (size_t at = 0; at < file.changes.size(); ++at) {
      const Change& change = file.changes[at];
      if (at >= file.num_durable && choose(1) == 0) continue;
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

class PowerCut : public test::TestFolder {
 protected:
  // After each call from here on several states of the disk are looked at. They hold at least step `saved_`.
  void watch() {
    disk_ = std::make_unique<Disk>(folder_ / "disk");
    test::system_calls().before = [](const SystemCall&) { return 0; };
    test::system_calls().after = [this](const SystemCall& call) {
      const std::lock_guard lock(mutex_);
      if (HasFailure() || !(call.path + "/").starts_with((folder_ / "disk").string() + "/")) return;
      disk_->note(call);
      look(concat("after ", call.name, " of ", call.path));
    };
  }

  void look(const std::string& when) {
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

  template <class Choose>
  void look_at(const std::string& when, const Choose& choose) {
    const fs::path state = folder_ / "state", run = state / "run";
    fs::remove_all(state);
    disk_->materialize(state, choose);
    ++num_states_;
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

  void save(int64_t step) {
    SmallCheckpoint(static_cast<uint32_t>(step), /*rows=*/1300).save(folder_ / "disk/run", step);
    saved_ = step;
  }

  std::unique_ptr<Disk> disk_;
  std::mutex mutex_;
  std::mt19937_64 random_{20261124};
  int64_t saved_ = 0, num_states_ = 0;
  std::set<int64_t> newest_;
};

TEST_F(PowerCut, LeavesTheOldCheckpointOrTheNewOne) {
  const test::SystemCallsScope scope;
  fs::create_directories(folder_ / "disk");
  watch();
  save(1);
  save(2);
  remove_step_folder({1, folder_ / "disk/run/step_00000001"});
  save(3);
  test::system_calls() = {};
  EXPECT_GE(disk_->num_calls(), 120) << "too few calls were seen";
  EXPECT_GE(num_states_, 8 * 120);
  EXPECT_EQ(newest_, (std::set<int64_t>{0, 1, 2, 3}));
  RecordProperty("states", static_cast<int>(num_states_));
}

}  // namespace power_cut_test
}  // namespace espalier::store
