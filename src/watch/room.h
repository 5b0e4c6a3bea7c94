// Space and inodes of file systems, and quotas, and when they are too little.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace espalier::watch {

struct Room {
  std::string folder;
  uint64_t device = 0;  // the same of folders on one file system
  double free_bytes = 0, total_bytes = 0;
  double free_inodes = 0, total_inodes = 0;  // 0 in total: the file system does not count them
};

// Nothing where the folder cannot be asked.
std::optional<Room> room_of(const std::string& folder);

struct Quota {
  std::string name;  // "bytes", "inodes", or what a command of the site calls it
  double used = 0, limit = 0;
};

// The user's own on the file system of the folder, as the kernel has them: of local ones with quotas.
std::vector<Quota> quotas_of(const std::string& folder);
// "NAME USED LIMIT" lines, as a command of the site prints them (of Lustre's `lfs quota`, GPFS's `mmlsquota`). A
// UserError for anything else.
std::vector<Quota> parse_quotas(const std::string& text);

struct Need {
  double bytes = 0, inodes = 0;
};

// What is wrong; empty: nothing. `was_low`: it was at the last look, and must have a quarter more to be well again.
std::string lack_of_room(const Room& room, const Need& need, bool was_low);
std::string lack_of_quota(const std::vector<Quota>& quotas, double most_share, bool was_low);

}  // namespace espalier::watch
