// Files: whole, mapped, and written so that a crash leaves either the old or the new one.
//
// Every failure is a UserError with path, operation and reason. Readers refuse FIFOs, sockets and devices (kBadData).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace espalier {

// "a folder", "a pipe (FIFO)", "a socket", "a device"; empty for a regular file and where none exists.
const char* kind_of_no_file(std::filesystem::file_type type);

std::string read_file(const std::filesystem::path& path);

// One PendingFile (pending_file.h), written and put into its place.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

void fsync_directory(const std::filesystem::path& directory);
void sync_file(const std::filesystem::path& path);  // one that was written and closed

// Creates what is missing of the folders of `path`, so that their names survive a power cut with what is then written
// into them. Says why not, and throws nothing.
[[nodiscard]] std::error_code create_folders(const std::filesystem::path& path);

int64_t file_size_bytes(const std::filesystem::path& path);

// A read-only mapping of a whole file; an empty file has data() == nullptr and size() == 0. Movable. Where the file is
// cut off meanwhile, reading what is gone ends the process with a message that names the file (exit code 74).
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }
  // Gives the memory of what was read back to the system; what is read again comes from the file. Any thread.
  void release() const;

 private:
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// A file that is read piece by piece, for what is too large to be mapped or held. Movable.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  // Exactly `size` bytes from `offset` on; a file that ends before is a UserError. Any thread.
  void read_at(void* data, size_t size, int64_t offset) const;
  int64_t size_bytes() const { return size_bytes_; }  // when it was opened

 private:
  friend class OutputFile;
  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t size_bytes_ = 0;
};

// An output file: buffered by the caller's calls, positioned, with fsync. Closing without close() drops errors, so
// call close() on the good path.
class OutputFile {
 public:
  // Creates or truncates.
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;

  void write(const void* data, size_t size);  // at the end of what was written so far
  // `size` bytes of another file, from `offset` on, after what was written so far: copied by the kernel where it can.
  void write_from(const InputFile& source, int64_t offset, int64_t size);
  void write_at(const void* data, size_t size, int64_t offset);  // any thread; does not move the end
  void sync();
  void close();
  int64_t position() const { return position_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  int64_t position_ = 0;
};

}  // namespace espalier
