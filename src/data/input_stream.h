// The bytes of an input file, decompressed on the way.
//
// The compression is recognized from the first bytes, never from the name: gzip (several members too), zstd (several
// frames), xz, bzip2 (several streams), or none; "-" is standard input, with the same choice. What is neither text nor
// one of these but well known (zip, Parquet) is refused by name. A damaged or truncated file is reported with its path
// and the byte of the compressed file where it was noticed (exit code 65).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace espalier::data {

class InputStream {
 public:
  virtual ~InputStream() = default;

  // Fills up to `capacity` bytes; 0 only at the end.
  virtual size_t read(char* bytes, size_t capacity) = 0;
  // How much of the file, as it is on disk, has been read: what progress counts.
  virtual int64_t consumed_bytes() const = 0;
};

std::unique_ptr<InputStream> open_input(const std::string& path);

// Appends what comes next, at most 256 KiB. False at the end.
bool read_on(InputStream& stream, std::string& buffer);

// From byte `begin` on. Only for files that are not compressed.
std::unique_ptr<InputStream> open_plain_input_at(const std::string& path, int64_t begin);

// Whether the file starts like a compressed one (and so cannot be entered in the middle).
bool is_compressed(const std::string& path);

// "standard input" for "-", else the path: for messages.
std::string shown_name(const std::string& path);

}  // namespace espalier::data
