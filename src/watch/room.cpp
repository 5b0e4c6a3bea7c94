#include "watch/room.h"

#include <sys/quota.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/error.h"
#include "base/format.h"

namespace espalier::watch {
namespace {

constexpr double kQuotaBlock = 1024, kBackAgain = 1.25;

// The block device that is mounted where the folder is; empty for file systems of the network.
std::string device_file(const std::string& folder) {
  struct stat info = {};
  if (::stat(folder.c_str(), &info) != 0) return "";
  const std::string wanted = concat(major(info.st_dev), ":", minor(info.st_dev));
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const std::vector<std::string> words = split_blanks(line);
    if (words.size() < 10 || words[2] != wanted) continue;
    for (size_t at = 6; at + 2 < words.size(); ++at)
      if (words[at] == "-" && words[at + 2].starts_with("/dev/")) return words[at + 2];
  }
  return "";
}

std::string amount_text(const Quota& quota) {
  if (quota.name.find("bytes") != std::string::npos)
    return concat(format_bytes(quota.used), " of ", format_bytes(quota.limit));
  return concat(format_count(static_cast<int64_t>(quota.used)), " of ",
                format_count(static_cast<int64_t>(quota.limit)));
}

}  // namespace

std::optional<Room> room_of(const std::string& folder) {
  struct statvfs space = {};
  struct stat info = {};
  if (::statvfs(folder.c_str(), &space) != 0 || ::stat(folder.c_str(), &info) != 0) return std::nullopt;
  const auto block = static_cast<double>(space.f_frsize);
  return Room{.folder = folder,
              .device = info.st_dev,
              .free_bytes = block * static_cast<double>(space.f_bavail),
              .total_bytes = block * static_cast<double>(space.f_blocks),
              .free_inodes = static_cast<double>(space.f_favail),
              .total_inodes = static_cast<double>(space.f_files)};
}

std::vector<Quota> quotas_of(const std::string& folder) {
  const std::string device = device_file(folder);
  dqblk found = {};
  if (device.empty() || quotactl(QCMD(Q_GETQUOTA, USRQUOTA), device.c_str(), static_cast<int>(getuid()),
                                 reinterpret_cast<caddr_t>(&found)) != 0)
    return {};
  std::vector<Quota> quotas;
  if (found.dqb_bhardlimit > 0)
    quotas.push_back(
        {"bytes", static_cast<double>(found.dqb_curspace), static_cast<double>(found.dqb_bhardlimit) * kQuotaBlock});
  if (found.dqb_ihardlimit > 0)
    quotas.push_back({"inodes", static_cast<double>(found.dqb_curinodes), static_cast<double>(found.dqb_ihardlimit)});
  return quotas;
}

std::vector<Quota> parse_quotas(const std::string& text) {
  std::vector<Quota> quotas;
  for (const std::string& line : split(text, '\n')) {
    const std::vector<std::string> words = split_blanks(line);
    if (words.empty()) continue;
    Quota quota;
    char *used_end = nullptr, *limit_end = nullptr;
    if (words.size() == 3) {
      quota = {words[0], std::strtod(words[1].c_str(), &used_end), std::strtod(words[2].c_str(), &limit_end)};
    }
    if (used_end == nullptr || *used_end != '\0' || *limit_end != '\0' || quota.limit < 0)
      throw UserError(concat("--quota-command: expected lines 'NAME USED LIMIT' with two numbers, found '", line, "'"));
    if (quota.limit > 0) quotas.push_back(quota);  // 0: without limit
  }
  return quotas;
}

std::string lack_of_room(const Room& room, const Need& need, bool was_low) {
  const double factor = was_low ? kBackAgain : 1;
  if (room.free_bytes < need.bytes * factor)
    return concat("the file system of '", room.folder, "' has ", format_bytes(room.free_bytes), " left of ",
                  format_bytes(room.total_bytes), "; ", format_bytes(need.bytes), " are wanted");
  if (room.total_inodes > 0 && room.free_inodes < need.inodes * factor)
    return concat("the file system of '", room.folder, "' has ", format_count(static_cast<int64_t>(room.free_inodes)),
                  " inodes left of ", format_count(static_cast<int64_t>(room.total_inodes)), "; ",
                  format_count(static_cast<int64_t>(need.inodes)), " are wanted");
  return "";
}

std::string lack_of_quota(const std::vector<Quota>& quotas, double most_share, bool was_low) {
  const double most = was_low ? most_share - (1 - most_share) / 4 : most_share;
  std::vector<std::string> used_up;
  for (const Quota& quota : quotas)
    if (quota.used > most * quota.limit)
      used_up.push_back(
          concat(quota.name, ": ", amount_text(quota), " (", format_fixed(100 * quota.used / quota.limit, 1), " %)"));
  return used_up.empty() ? "" : "the quota is nearly used up: " + join(used_up, "; ");
}

}  // namespace espalier::watch
