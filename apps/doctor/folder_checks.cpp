#include <fcntl.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "apps/doctor/machine_checks.h"
#include "base/error.h"
#include "base/format.h"

namespace espalier {
namespace {

using Verdict = Finding::Verdict;

// "ext4", "nfs4", "tmpfs": of the mount with the longest path above the folder.
std::string file_system_of(const std::filesystem::path& folder) {
  std::ifstream mounts("/proc/self/mounts");
  std::string best, type = "unknown";
  for (std::string line; std::getline(mounts, line);) {
    const std::vector<std::string> words = split_blanks(line);
    if (words.size() < 3) continue;
    const std::string& place = words[1];
    const std::string path = folder.string() + "/";
    const std::string prefix = place == "/" ? place : place + "/";
    if (path.starts_with(prefix) && place.size() >= best.size()) best = place, type = words[2];
  }
  return type;
}

// What fails of what a run does in its folder; "" if nothing.
std::string use(const std::filesystem::path& folder) {
  std::string path = (folder / ".espalier-doctor-XXXXXX").string();
  const int file = mkostemp(path.data(), O_CLOEXEC);
  if (file < 0) return concat("cannot write there: ", std::strerror(errno));
  std::string trouble;
  if (write(file, "x", 1) != 1)
    trouble = concat("cannot write there: ", std::strerror(errno));
  else if (fsync(file) != 0)
    trouble = concat("fsync fails: ", std::strerror(errno));
  else if (flock(file, LOCK_EX | LOCK_NB) != 0)
    trouble = concat("flock fails: ", std::strerror(errno));
  const std::string renamed = path + ".renamed";
  if (trouble.empty() && std::rename(path.c_str(), renamed.c_str()) != 0)
    trouble = concat("rename fails: ", std::strerror(errno));
  close(file);
  unlink(path.c_str());
  unlink(renamed.c_str());
  return trouble;
}

}  // namespace

std::vector<Finding> check_folder(const std::string& folder) {
  const std::string topic = "folder " + folder;
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(folder, error);
  if (error) return {{topic, Verdict::kProblem, error.message(), "name a folder that exists"}};
  if (!std::filesystem::is_directory(path, error)) return {{topic, Verdict::kProblem, "is not a folder", ""}};
  struct statvfs space = {};
  if (statvfs(path.c_str(), &space) != 0) return {{topic, Verdict::kProblem, std::strerror(errno), ""}};
  const double block = static_cast<double>(space.f_frsize);
  const double free_bytes = block * static_cast<double>(space.f_bavail);
  Finding finding{topic, Verdict::kGood,
                  concat(file_system_of(path), ", ", format_bytes(free_bytes), " free of ",
                         format_bytes(block * static_cast<double>(space.f_blocks))),
                  ""};
  const std::string trouble = use(path);
  constexpr double kLittle = 1073741824.0;
  if (!trouble.empty()) {
    finding.verdict = Verdict::kProblem;
    finding.text += "; " + trouble;
    finding.advice = "a run cannot save here";
  } else if (free_bytes < kLittle) {
    finding.verdict = Verdict::kWarning;
    finding.advice = "little room: a checkpoint takes 14 bytes a parameter";
  } else if (space.f_files > 0 && space.f_favail < 1000) {
    finding.verdict = Verdict::kWarning;
    finding.text += concat(", ", space.f_favail, " inodes free");
    finding.advice = "few files can be made here";
  }
  return {finding};
}

}  // namespace espalier
