#include "store/internal/zip_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "store/internal/pickle_input.h"

namespace espalier::store {
namespace {

constexpr uint32_t kLocalSignature = 0x04034b50, kDirectorySignature = 0x02014b50, kEndSignature = 0x06054b50,
                   kEnd64Signature = 0x06064b50, kLocator64Signature = 0x07064b50;
constexpr int64_t kLocalBytes = 30, kDirectoryEntryBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr int64_t kLongestComment = 65535;
constexpr int64_t kLongestDirectory = 1 << 30;

template <class Number>
Number number_at(const std::string& bytes, int64_t offset) {
  Number number;
  ESPALIER_CHECK(offset >= 0 && offset + static_cast<int64_t>(sizeof number) <= static_cast<int64_t>(bytes.size()));
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

std::string bytes_at(const InputFile& file, int64_t offset, int64_t size, const char* what) {
  if (offset < 0 || size < 0 || offset > file.size_bytes() || size > file.size_bytes() - offset)
    refuse_file(what, ": expected ", size, " bytes at byte ", offset, ", the file has ", file.size_bytes());
  std::string bytes(static_cast<size_t>(size), '\0');
  file.read_at(bytes.data(), bytes.size(), offset);
  return bytes;
}

struct Directory {
  int64_t offset = 0, size = 0;
  uint64_t num_entries = 0;
};

Directory find_directory(const InputFile& file) {
  const int64_t tail_bytes = std::min(file.size_bytes(), kEndBytes + kLongestComment);
  const int64_t tail_offset = file.size_bytes() - tail_bytes;
  const std::string tail = bytes_at(file, tail_offset, tail_bytes, "end of the zip file");
  int64_t end = tail_bytes - kEndBytes;
  while (end >= 0 && number_at<uint32_t>(tail, end) != kEndSignature) --end;
  if (end < 0) refuse_file("zip file: expected the directory at its end, found none; it is cut off or damaged");
  Directory directory = {number_at<uint32_t>(tail, end + 16), number_at<uint32_t>(tail, end + 12),
                         number_at<uint16_t>(tail, end + 10)};
  const int64_t locator_offset = tail_offset + end - kLocator64Bytes;
  if (locator_offset >= 0) {
    const std::string locator = bytes_at(file, locator_offset, kLocator64Bytes, "zip64 locator");
    if (number_at<uint32_t>(locator, 0) == kLocator64Signature) {
      const auto offset = number_at<int64_t>(locator, 8);
      const std::string end64 = bytes_at(file, offset, kEnd64Bytes, "zip64 end of the directory");
      if (number_at<uint32_t>(end64, 0) != kEnd64Signature)
        refuse_file("zip64 end of the directory: expected at byte ", offset, ", found something else");
      directory = {number_at<int64_t>(end64, 48), number_at<int64_t>(end64, 40), number_at<uint64_t>(end64, 32)};
    }
  }
  if (directory.size > kLongestDirectory)
    refuse_file("zip directory: expected at most ", kLongestDirectory, " bytes, found ", directory.size);
  return directory;
}

void check_name(const std::string& name, int64_t offset) {
  const bool bad = name.empty() || name.front() == '/' || name.find('\\') != std::string::npos ||
                   name.find('\0') != std::string::npos || ("/" + name + "/").find("/../") != std::string::npos;
  if (bad) refuse_file("zip directory, byte ", offset, ": expected a plain name of an entry, found '", name, "'");
}

// Sizes and offset that do not fit 32 bits are in the extra field 1, those that are all ones, in this order.
void read_zip64_extra(const std::string& extra, int64_t offset, std::array<int64_t*, 3> fields) {
  for (int64_t at = 0; at + 4 <= static_cast<int64_t>(extra.size());) {
    const int64_t id = number_at<uint16_t>(extra, at), size = number_at<uint16_t>(extra, at + 2);
    at += 4;
    if (size > static_cast<int64_t>(extra.size()) - at)
      refuse_file("zip directory, byte ", offset, ": expected an extra field of ", size, " bytes, found ",
                  static_cast<int64_t>(extra.size()) - at);
    if (id == 1) {
      int64_t next = at;
      for (int64_t* field : fields) {
        if (*field != 0xffffffff || next + 8 > at + size) continue;
        *field = number_at<int64_t>(extra, next);
        next += 8;
      }
    }
    at += size;
  }
}

// The content of an entry begins after its local header, whose lengths may differ from the directory's.
int64_t content_offset(const InputFile& file, int64_t local_offset, const std::string& name) {
  const std::string where = "zip entry '" + name + "'";
  const std::string local =
      bytes_at(file, local_offset, kLocalBytes + static_cast<int64_t>(name.size()), where.c_str());
  if (number_at<uint32_t>(local, 0) != kLocalSignature)
    refuse_file(where, ": expected its header at byte ", local_offset, ", found something else");
  if (number_at<uint16_t>(local, 26) != name.size() || local.substr(kLocalBytes) != name)
    refuse_file(where, ": expected its name at byte ", local_offset + kLocalBytes, ", found another");
  return local_offset + kLocalBytes + static_cast<int64_t>(name.size()) + number_at<uint16_t>(local, 28);
}

struct Extent {
  int64_t begin, end;
  std::string name;
};

void check_apart(std::vector<Extent>& extents, int64_t directory_offset) {
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  int64_t position = 0;
  for (const Extent& extent : extents) {
    if (extent.begin < position)
      refuse_file("zip entry '", extent.name, "': expected to begin at byte ", position, " or after, found ",
                  extent.begin, "; it overlaps another");
    position = extent.end;
  }
  if (position > directory_offset)
    refuse_file("zip entry '", extents.back().name, "': expected to end before the directory at byte ",
                directory_offset, ", found ", position);
}

}  // namespace

bool is_zip_file(const InputFile& file) {
  uint32_t signature = 0;
  if (file.size_bytes() < kLocalBytes) return false;
  file.read_at(&signature, sizeof signature, 0);
  return signature == kLocalSignature;
}

std::map<std::string, ZipEntry> read_zip_directory(const InputFile& file) {
  const Directory directory = find_directory(file);
  const std::string bytes = bytes_at(file, directory.offset, directory.size, "zip directory");
  std::map<std::string, ZipEntry> entries;
  std::vector<Extent> extents;
  int64_t at = 0;
  for (uint64_t index = 0; index < directory.num_entries; ++index) {
    const int64_t where = directory.offset + at, left = directory.size - at;
    if (left < kDirectoryEntryBytes || number_at<uint32_t>(bytes, at) != kDirectorySignature)
      refuse_file("zip directory, byte ", where, ": expected entry ", index, " of ", directory.num_entries,
                  ", found something else");
    const auto flags = number_at<uint16_t>(bytes, at + 8), method = number_at<uint16_t>(bytes, at + 10);
    const int64_t name_bytes = number_at<uint16_t>(bytes, at + 28), extra_bytes = number_at<uint16_t>(bytes, at + 30),
                  comment_bytes = number_at<uint16_t>(bytes, at + 32);
    const int64_t entry_bytes = kDirectoryEntryBytes + name_bytes + extra_bytes + comment_bytes;
    if (left < entry_bytes)
      refuse_file("zip directory, byte ", where, ": expected ", entry_bytes, " bytes, found ", left);
    const std::string name =
        bytes.substr(static_cast<size_t>(at + kDirectoryEntryBytes), static_cast<size_t>(name_bytes));
    check_name(name, where);
    if ((flags & 1) != 0) refuse_file("zip entry '", name, "': expected plain content, found it encrypted");
    if (method != 0)
      refuse_file("zip entry '", name, "': expected stored content, found compression method ", method,
                  "; torch.save writes none, so the file was packed again: unpack it with that program");
    int64_t size = number_at<uint32_t>(bytes, at + 24), stored = number_at<uint32_t>(bytes, at + 20),
            local = number_at<uint32_t>(bytes, at + 42);
    read_zip64_extra(
        bytes.substr(static_cast<size_t>(at + kDirectoryEntryBytes + name_bytes), static_cast<size_t>(extra_bytes)),
        where, {&size, &stored, &local});
    if (size != stored) refuse_file("zip entry '", name, "': expected ", size, " stored bytes, found ", stored);
    const int64_t begin = content_offset(file, local, name);
    if (size < 0 || begin > file.size_bytes() || size > file.size_bytes() - begin)
      refuse_file("zip entry '", name, "': expected ", size, " bytes at byte ", begin, ", the file has ",
                  file.size_bytes());
    if (!entries.emplace(name, ZipEntry{begin, size, number_at<uint32_t>(bytes, at + 16)}).second)
      refuse_file("zip entry '", name, "': occurs twice");
    extents.push_back({local, begin + size, name});
    at += entry_bytes;
  }
  check_apart(extents, directory.offset);
  return entries;
}

}  // namespace espalier::store
