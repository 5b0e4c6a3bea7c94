#include "curate/pass_work.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "curate/internal/run_fixture.h"

namespace espalier::curate {
namespace {

// Of each part what it was fed, and of all of them together a line.
class ListPass : public Pass {
 public:
  explicit ListPass(int64_t num_parts) : num_parts_(num_parts) {}

  int64_t num_parts() const override { return num_parts_; }
  void digest(const Document&, Digests&) const override {}
  std::unique_ptr<PassPart> make_part(int64_t, const PassSpace& space) const override {
    EXPECT_TRUE(std::filesystem::is_empty(space.folder));
    EXPECT_GE(space.memory_bytes, kMemory / 3);
    ++num_made;
    return std::make_unique<ListPart>(space.folder / "list");
  }
  void join(const std::vector<std::filesystem::path>& parts, const PassSpace& space) const override {
    ++num_joined;
    std::string all;
    for (const std::filesystem::path& part : parts) all += test::read_text(part / "list") + ";";
    test::write_text(space.folder / "list", all);
  }
  void open(const std::filesystem::path&) override {}
  Fate decide(Document&) const override { return Fate::kept(); }

  static constexpr int64_t kMemory = 300;
  mutable std::atomic<int> num_made = 0, num_joined = 0;

 private:
  class ListPart : public PassPart {
   public:
    explicit ListPart(std::filesystem::path file) : file_(std::move(file)) {}
    void add(int64_t number, std::string_view digest) override { list_ += concat(number, digest); }
    void finish() override { test::write_text(file_, list_); }

   private:
    std::filesystem::path file_;
    std::string list_;
  };
  int64_t num_parts_;
};

std::string make(const std::string& folder, ListPass& pass, int64_t workers = 3) {
  PassWork work(folder, "list", workers, ListPass::kMemory);
  return test::read_text(work.make(pass, [](int64_t part, PassPart& into) {
    into.add(part, "a");
    into.add(part + 1, "b");
  }) / "list");
}

TEST(PassWork, MakesEachPartOnceAndJoinsThem) {
  const test::TestFolder folder;
  for (const int64_t workers : {1, 2, 3}) {
    std::filesystem::remove_all(folder / "pass");
    ListPass pass(3), again(3);
    EXPECT_EQ(make(folder / "pass", pass, workers), "0a1b;1a2b;2a3b;");
    EXPECT_EQ(pass.num_made, 3);
    EXPECT_EQ(pass.num_joined, 1);
    EXPECT_EQ(make(folder / "pass", again), "0a1b;1a2b;2a3b;");
    EXPECT_EQ(again.num_made + again.num_joined, 0) << "what is complete stays";
  }
  ListPass alone(1);
  EXPECT_EQ(make(folder / "alone", alone), "0a1b");
  EXPECT_EQ(alone.num_joined, 0);
}

TEST(PassWork, WaitsForAnothersPartAndMakesItWhenThatOneHasEnded) {
  const test::TestFolder folder;
  std::filesystem::create_directories(folder / "pass/part-00001.partial");
  test::write_text(folder / "pass/part-00001.partial/list", "half");
  std::optional<FileLock> other = FileLock::try_take(folder / "pass/part-00001.lock");
  ASSERT_TRUE(other);
  ListPass pass(3);
  std::atomic<bool> is_done = false;
  std::string list;
  std::thread thread([&] {
    list = make(folder / "pass", pass);
    is_done = true;
  });
  while (pass.num_made < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_FALSE(is_done);
  EXPECT_EQ(pass.num_made, 2);
  other.reset();
  thread.join();
  EXPECT_EQ(list, "0a1b;1a2b;2a3b;");
  EXPECT_EQ(pass.num_made, 3);
}

}  // namespace
}  // namespace espalier::curate
