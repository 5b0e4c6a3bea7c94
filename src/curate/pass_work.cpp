#include "curate/pass_work.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/thread_pool.h"

namespace espalier::curate {
namespace {

namespace fs = std::filesystem;

constexpr const char* kJoined = "joined";

}  // namespace

PassWork::PassWork(fs::path folder, std::string title, int64_t workers, int64_t memory_bytes)
    : folder_(std::move(folder)), title_(std::move(title)), workers_(workers), memory_bytes_(memory_bytes) {
  fs::create_directories(folder_);
}

fs::path PassWork::path_of(const std::string& name, const char* end) const { return folder_ / (name + end); }

// Nothing where it is complete, or another's.
void PassWork::make_one(const std::string& name, int64_t memory_bytes, const Work& work) const {
  if (is_complete(name)) return;
  const std::optional<FileLock> claim = FileLock::try_take(path_of(name, ".lock"));
  if (!claim || is_complete(name)) return;
  const fs::path partial = path_of(name, ".partial");
  fs::remove_all(partial);  // of one that was killed
  fs::create_directory(partial);
  work({partial, memory_bytes});
  for (const fs::directory_entry& entry : fs::directory_iterator(partial)) sync_file(entry.path());
  fsync_directory(partial);
  fs::rename(partial, path_of(name));
  fsync_directory(folder_);
}

// On as many threads as there is work for.
void PassWork::make_parts(const Pass& pass, const Feed& feed, const std::vector<std::string>& names) const {
  const auto threads = std::min(workers_, static_cast<int64_t>(names.size()));
  Progress progress(title_, static_cast<int64_t>(names.size()), Progress::Unit::kItems, "parts");
  std::atomic<size_t> next = 0;
  const auto make_some = [&] {
    for (size_t part; (part = next++) < names.size(); progress.advance(1)) {
      make_one(names[part], memory_bytes_ / threads, [&](const PassSpace& space) {
        const std::unique_ptr<PassPart> made_part = pass.make_part(static_cast<int64_t>(part), space);
        feed(static_cast<int64_t>(part), *made_part);
        made_part->finish();
      });
    }
  };
  {
    ThreadPool pool(static_cast<int>(threads));
    std::vector<std::future<void>> done;
    for (int64_t thread = 0; thread < threads; ++thread) done.push_back(pool.submit(make_some));
    for (std::future<void>& one : done) one.get();
  }
  progress.finish();
}

bool PassWork::is_left(const std::string& name) const {
  return !is_complete(name) && FileLock::try_take(path_of(name, ".lock")) && !is_complete(name);
}

// Until all are complete: a process that ends without completing its own leaves it to the others.
void PassWork::complete(const std::vector<std::string>& names, const std::function<void()>& make_left) const {
  for (bool told = false;;) {
    const auto open = std::count_if(names.begin(), names.end(), [&](const auto& name) { return !is_complete(name); });
    if (open == 0) return;
    if (std::any_of(names.begin(), names.end(), [&](const auto& name) { return is_left(name); })) {
      make_left();
      continue;
    }
    if (!told) log_info(title_, ": waiting for ", format_counted(open, "part"), " that other processes are making");
    told = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

fs::path PassWork::make(const Pass& pass, const Feed& feed) {
  std::vector<std::string> names;
  for (int64_t part = 0; part < pass.num_parts(); ++part)
    names.push_back(format_printf("part-%05lld", static_cast<long long>(part)));
  complete(names, [&] { make_parts(pass, feed, names); });
  if (names.size() == 1) return path_of(names.front());
  std::vector<fs::path> parts;
  for (const std::string& name : names) parts.push_back(path_of(name));
  complete({kJoined},
           [&] { make_one(kJoined, memory_bytes_, [&](const PassSpace& space) { pass.join(parts, space); }); });
  return path_of(kJoined);
}

}  // namespace espalier::curate
