#include "base/growing_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "base/log.h"
#include "base/pending_file.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

[[noreturn]] void fail_to(const char* operation, const fs::path& path) {
  throw UserError(concat("cannot ", operation, " '", path.string(), "': ", std::strerror(errno)),
                  errno == ENOSPC || errno == EIO ? ExitCode::kInputOutput : ExitCode::kCannotCreate);
}

std::string shown(const Json& facts, const std::string& key) {
  return facts.contains(key) ? facts[key].dump(-1, ' ', false, Json::error_handler_t::replace) : "nothing";
}

// "seed was 7 and is 8; ..."
std::string differences(const Json& before, const Json& now) {
  std::set<std::string> keys;
  for (const Json& facts : {before, now})
    for (const auto& [key, value] : facts.items()) keys.insert(key);
  std::vector<std::string> lines;
  for (const std::string& key : keys)
    if (const std::string was = shown(before, key), is = shown(now, key); was != is)
      lines.push_back(concat(key, " was ", was, " and is ", is));
  return join(lines, "; ");
}

}  // namespace

GrowingFile::GrowingFile(fs::path path, const Json& made_from, How how)
    : path_(std::move(path)), partial_(path_.string() + ".partial"), facts_(path_.string() + ".partial.json") {
  if (const std::string existing = describe_existing({path_}); !existing.empty() && !how.overwrite)
    throw UserError(existing, ExitCode::kCannotCreate);
  descriptor_ = ::open(partial_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
  if (descriptor_ < 0) fail_to("create", partial_);
  try {
    take_over(made_from, how.overwrite);
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

GrowingFile::~GrowingFile() {
  if (descriptor_ < 0) return;
  if (::lseek(descriptor_, 0, SEEK_END) == 0) {
    std::error_code ignored;
    fs::remove(facts_, ignored);
    fs::remove(partial_, ignored);
  }
  ::close(descriptor_);
}

void GrowingFile::take_over(const Json& made_from, bool overwrite) {
  const bool held_elsewhere = ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  // Its owner may have put it into its place between the two calls.
  struct stat held, named;
  const bool same = ::fstat(descriptor_, &held) == 0 && ::stat(partial_.c_str(), &named) == 0 &&
                    held.st_ino == named.st_ino && held.st_dev == named.st_dev;
  if (held_elsewhere || !same)
    throw UserError(concat("'", partial_.string(),
                           "' is being written by another process. Wait until it has ended, or give another name for "
                           "the output."),
                    ExitCode::kCannotCreate);
  if (overwrite && ::ftruncate(descriptor_, 0) != 0) fail_to("write", partial_);
  if (::lseek(descriptor_, 0, SEEK_END) > 0) {
    const Json before = fs::exists(facts_) ? parse_json<Json>(read_file(facts_), facts_.string()) : Json::object();
    if (const std::string different = differences(before, made_from); !different.empty())
      throw UserError(concat("'", partial_.string(), "' was begun with something else: ", different,
                             ". Give what it was begun with, another name for the output, or --overwrite to begin "
                             "again."),
                      ExitCode::kUsage);
    keep_whole_lines();
    if (num_kept_ > 0)
      log_info("'", partial_.string(), "' has ", format_counted(num_kept_, "line"),
               " of an earlier process: continuing");
  } else {
    write_file_atomically(facts_, made_from.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  }
}

void GrowingFile::keep_whole_lines() {
  std::vector<char> piece(1 << 16);
  int64_t at = 0, end = 0;
  for (ssize_t size; (size = ::pread(descriptor_, piece.data(), piece.size(), at)) != 0; at += size) {
    if (size < 0) fail_to("read", partial_);
    for (ssize_t byte = 0; byte < size; ++byte)
      if (piece[static_cast<size_t>(byte)] == '\n') ++num_kept_, end = at + byte + 1;
  }
  if (::ftruncate(descriptor_, end) != 0 || ::lseek(descriptor_, end, SEEK_SET) < 0) fail_to("write", partial_);
}

void GrowingFile::write(std::string_view line) {
  const std::string text = concat(line, "\n");
  for (size_t at = 0; at < text.size();) {
    const ssize_t size = ::write(descriptor_, text.data() + at, text.size() - at);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) fail_to("write", partial_);
    at += static_cast<size_t>(size);
  }
}

void GrowingFile::finish() {
  if (::fsync(descriptor_) != 0) fail_to("write", partial_);
  if (::rename(partial_.c_str(), path_.c_str()) != 0) fail_to("rename", partial_);
  std::error_code error;
  fs::remove(facts_, error);
  fsync_directory(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
  ::close(descriptor_);
  descriptor_ = -1;
}

}  // namespace espalier
