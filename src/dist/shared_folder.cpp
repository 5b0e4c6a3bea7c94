#include "dist/shared_folder.h"

#include <chrono>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/host_name.h"
#include "base/sha256.h"

namespace espalier::dist {
namespace {

namespace fs = std::filesystem;

// Listing the folder makes a network file system ask its server again.
bool appears(const fs::path& file, double patience_seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(patience_seconds);
  while (true) {
    std::error_code error;
    for (fs::directory_iterator entry(file.parent_path(), error), last; !error && entry != last; entry.increment(error))
      if (entry->path().filename() == file.filename()) return true;
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace

void check_folder_is_shared(const fs::path& folder, const Group& world, double patience_seconds) {
  if (world.size() == 1) return;
  std::string mark, failure;
  if (world.rank() == 0) {
    mark = ".shared-" + hex_digits(random_bytes(8));
    try {
      write_file_atomically(folder / mark, host_name() + "\n");
    } catch (const UserError& error) {
      failure = error.what();
    }
  }
  const std::string mark_of_zero = world.gather_texts(failure.empty() ? mark : "!" + failure).front();
  if (mark_of_zero.starts_with("!")) throw UserError(mark_of_zero.substr(1), ExitCode::kCannotCreate);
  const bool seen = appears(folder / mark_of_zero, patience_seconds);
  const std::vector<std::string> blind = world.gather_texts(seen ? "" : host_name());
  if (world.rank() == 0) {
    std::error_code ignored;  // a leftover of no bytes to speak of
    fs::remove(folder / mark, ignored);
  }
  const std::set<std::string> hosts(blind.begin(), blind.end());
  std::vector<std::string> names;
  for (const std::string& host : hosts)
    if (!host.empty()) names.push_back(host);
  if (!names.empty())
    throw UserError(concat("the folder ", folder.string(), " is not shared: ", join(names, ", "),
                           " do(es) not see what rank 0 writes there. Checkpoints need one folder for all machines."));
}

}  // namespace espalier::dist
