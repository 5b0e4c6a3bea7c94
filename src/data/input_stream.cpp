#include "data/input_stream.h"

#include <bzlib.h>
#include <fcntl.h>
#include <lzma.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/format.h"
#include "data/parquet.h"

namespace espalier::data {
namespace {

constexpr size_t kCompressedBufferBytes = 256 << 10;
constexpr size_t kMagicBytes = 6;
constexpr uint64_t kMostMemoryBytes = (uint64_t{1} << 31) + (uint64_t{1} << 27);  // for 'zstd --long=31' and 'xz -9'

// A file or standard input, as it is on disk.
class RawInput {
 public:
  explicit RawInput(const std::string& path) : name_(shown_name(path)) {
    descriptor_ = path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor_ < 0) fail("open");
    owned_ = path != "-";
    ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  ~RawInput() {
    if (owned_) ::close(descriptor_);
  }
  RawInput(const RawInput&) = delete;
  RawInput& operator=(const RawInput&) = delete;

  void seek(int64_t offset) {
    if (::lseek(descriptor_, offset, SEEK_SET) < 0) fail("seek in");
  }

  // The first bytes, which stay to be read. Call before read().
  std::string_view magic() {
    while (head_.size() < kMagicBytes) {
      char bytes[kMagicBytes];
      const size_t got = read_some(bytes, kMagicBytes - head_.size());
      if (got == 0) break;
      head_.append(bytes, got);
    }
    return head_;
  }

  size_t read(char* bytes, size_t capacity) {
    size_t got = std::min(capacity, head_.size() - head_used_);
    if (got > 0) {
      std::memcpy(bytes, head_.data() + head_used_, got);
      head_used_ += got;
    } else {
      got = read_some(bytes, capacity);
    }
    consumed_ += static_cast<int64_t>(got);
    return got;
  }

  int64_t consumed_bytes() const { return consumed_; }
  const std::string& name() const { return name_; }

 private:
  size_t read_some(char* bytes, size_t capacity) {
    for (;;) {
      const ssize_t got = ::read(descriptor_, bytes, capacity);
      if (got >= 0) return static_cast<size_t>(got);
      if (errno != EINTR) fail("read");
    }
  }
  [[noreturn]] void fail(const char* operation) const {
    const int reason = errno;
    throw UserError(concat("cannot ", operation, " '", name_, "': ", std::strerror(reason)),
                    reason == ENOENT ? ExitCode::kMissingInput : ExitCode::kInputOutput);
  }

  std::string name_, head_;
  size_t head_used_ = 0;
  int descriptor_ = -1;
  bool owned_ = false;
  int64_t consumed_ = 0;
};

class PlainInput : public InputStream {
 public:
  explicit PlainInput(std::unique_ptr<RawInput> raw) : raw_(std::move(raw)) {}
  size_t read(char* bytes, size_t capacity) override { return raw_->read(bytes, capacity); }
  int64_t consumed_bytes() const override { return raw_->consumed_bytes(); }

 private:
  std::unique_ptr<RawInput> raw_;
};

// What the decoders share: a buffer of compressed bytes and the reports.
class CompressedInput : public InputStream {
 public:
  CompressedInput(std::unique_ptr<RawInput> raw, const char* format)
      : raw_(std::move(raw)), format_(format), buffer_(kCompressedBufferBytes) {}
  int64_t consumed_bytes() const override { return raw_->consumed_bytes(); }

 protected:
  // The next compressed bytes; empty at the end of the file.
  std::string_view refill() { return {buffer_.data(), raw_->read(buffer_.data(), buffer_.size())}; }

  // `unread`: bytes of the buffer that the decoder has not taken.
  [[noreturn]] void fail_damaged(size_t unread) const {
    throw UserError(concat("'", raw_->name(), "': damaged ", format_, " data at byte ",
                           format_count(raw_->consumed_bytes() - static_cast<int64_t>(unread)),
                           " of the compressed file. Copy or compress the file again."),
                    ExitCode::kBadData);
  }
  [[noreturn]] void fail_too_large() const {
    throw UserError(concat("'", raw_->name(), "': to decompress this ", format_, " data takes more than ",
                           format_bytes(static_cast<double>(kMostMemoryBytes)), " of memory. Compress the file again ",
                           "with a smaller window or dictionary."),
                    ExitCode::kBadData);
  }
  [[noreturn]] void fail_truncated() const {
    throw UserError(concat("'", raw_->name(), "': the ", format_, " data is cut off after ",
                           format_count(raw_->consumed_bytes()), " bytes. Copy or compress the file again."),
                    ExitCode::kBadData);
  }

 private:
  std::unique_ptr<RawInput> raw_;
  const char* format_;
  std::vector<char> buffer_;
};

class GzipInput : public CompressedInput {
 public:
  explicit GzipInput(std::unique_ptr<RawInput> raw) : CompressedInput(std::move(raw), "gzip") {
    constexpr int kWindowBits = 15, kGzipOnly = 16;
    if (inflateInit2(&stream_, kWindowBits + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~GzipInput() override { inflateEnd(&stream_); }

  size_t read(char* bytes, size_t capacity) override {
    stream_.next_out = reinterpret_cast<Bytef*>(bytes);
    stream_.avail_out = static_cast<uInt>(std::min<size_t>(capacity, 1u << 30));
    const uInt wanted = stream_.avail_out;
    while (stream_.avail_out == wanted) {
      // Output that did not fit last time is still inside the decoder and needs no new input.
      if (stream_.avail_in == 0 && !output_pending_ && !take_more()) {
        if (inside_member_) fail_truncated();
        return 0;
      }
      if (!inside_member_ && !begin_member()) continue;
      const int status = inflate(&stream_, Z_NO_FLUSH);
      inside_member_ = status != Z_STREAM_END;
      output_pending_ = inside_member_ && stream_.avail_out == 0;
      if (status == Z_STREAM_END) continue;
      if (status == Z_MEM_ERROR) throw std::bad_alloc();
      if (status != Z_OK && status != Z_BUF_ERROR) fail_damaged(stream_.avail_in);
    }
    return wanted - stream_.avail_out;
  }

 private:
  bool take_more() {
    const std::string_view more = refill();
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(more.data()));
    stream_.avail_in = static_cast<uInt>(more.size());
    return !more.empty();
  }

  // Members may be strung together, with zero bytes after the last (tapes pad so). False if only zeros were left.
  bool begin_member() {
    while (stream_.avail_in > 0 && *stream_.next_in == 0) ++stream_.next_in, --stream_.avail_in;
    if (stream_.avail_in == 0) return false;
    inflateReset(&stream_);
    return true;
  }

  z_stream stream_{};
  bool inside_member_ = true, output_pending_ = false;
};

class ZstdInput : public CompressedInput {
 public:
  explicit ZstdInput(std::unique_ptr<RawInput> raw)
      : CompressedInput(std::move(raw), "zstd"), stream_(ZSTD_createDStream()) {
    constexpr int kLargestWindowLog = 31;  // also what 'zstd --long=31' wrote
    if (stream_ == nullptr || ZSTD_isError(ZSTD_DCtx_setParameter(stream_, ZSTD_d_windowLogMax, kLargestWindowLog)))
      throw std::bad_alloc();
  }
  ~ZstdInput() override { ZSTD_freeDStream(stream_); }

  size_t read(char* bytes, size_t capacity) override {
    ZSTD_outBuffer out{bytes, capacity, 0};
    while (out.pos == 0) {
      // Output that did not fit last time is still inside the decoder and needs no new input.
      if (in_.pos == in_.size && !output_pending_) {
        const std::string_view more = refill();
        in_ = {more.data(), more.size(), 0};
        if (more.empty()) {
          if (inside_frame_) fail_truncated();
          return 0;
        }
      }
      const size_t status = ZSTD_decompressStream(stream_, &out, &in_);
      if (ZSTD_isError(status)) {
        const ZSTD_ErrorCode error = ZSTD_getErrorCode(status);
        if (error == ZSTD_error_frameParameter_windowTooLarge) fail_too_large();
        if (error == ZSTD_error_memory_allocation) throw std::bad_alloc();
        fail_damaged(in_.size - in_.pos);
      }
      inside_frame_ = status != 0;
      output_pending_ = out.pos == out.size && status != 0;
    }
    return out.pos;
  }

 private:
  ZSTD_DStream* stream_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool inside_frame_ = true, output_pending_ = false;
};

class XzInput : public CompressedInput {
 public:
  explicit XzInput(std::unique_ptr<RawInput> raw) : CompressedInput(std::move(raw), "xz") {
    if (lzma_stream_decoder(&stream_, kMostMemoryBytes, LZMA_CONCATENATED) != LZMA_OK) throw std::bad_alloc();
  }
  ~XzInput() override { lzma_end(&stream_); }

  size_t read(char* bytes, size_t capacity) override {
    stream_.next_out = reinterpret_cast<uint8_t*>(bytes);
    stream_.avail_out = capacity;
    while (stream_.avail_out == capacity && !finished_) {
      if (stream_.avail_in == 0 && !at_end_) {
        const std::string_view more = refill();
        stream_.next_in = reinterpret_cast<const uint8_t*>(more.data());
        stream_.avail_in = more.size();
        at_end_ = more.empty();
      }
      const lzma_ret status = lzma_code(&stream_, at_end_ ? LZMA_FINISH : LZMA_RUN);
      if (status == LZMA_STREAM_END)
        finished_ = true;
      else if (status == LZMA_BUF_ERROR && at_end_)
        fail_truncated();
      else if (status == LZMA_MEMLIMIT_ERROR)
        fail_too_large();
      else if (status == LZMA_MEM_ERROR)
        throw std::bad_alloc();
      else if (status != LZMA_OK && status != LZMA_BUF_ERROR)
        fail_damaged(stream_.avail_in);
    }
    return capacity - stream_.avail_out;
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool at_end_ = false, finished_ = false;
};

class Bzip2Input : public CompressedInput {
 public:
  explicit Bzip2Input(std::unique_ptr<RawInput> raw) : CompressedInput(std::move(raw), "bzip2") { begin_stream(); }
  ~Bzip2Input() override { BZ2_bzDecompressEnd(&stream_); }

  size_t read(char* bytes, size_t capacity) override {
    stream_.next_out = bytes;
    stream_.avail_out = static_cast<unsigned>(std::min<size_t>(capacity, 1u << 30));
    const unsigned wanted = stream_.avail_out;
    while (stream_.avail_out == wanted) {
      // Output that did not fit last time is still inside the decoder and needs no new input.
      if (stream_.avail_in == 0 && !output_pending_ && !take_more()) {
        if (inside_stream_) fail_truncated();
        return 0;
      }
      // Streams may be strung together (pbzip2, multistream dumps of wikis).
      if (!inside_stream_) {
        BZ2_bzDecompressEnd(&stream_);
        begin_stream();
      }
      const int status = BZ2_bzDecompress(&stream_);
      inside_stream_ = status != BZ_STREAM_END;
      output_pending_ = inside_stream_ && stream_.avail_out == 0;
      if (status == BZ_MEM_ERROR) throw std::bad_alloc();
      if (status != BZ_OK && status != BZ_STREAM_END) fail_damaged(stream_.avail_in);
    }
    return wanted - stream_.avail_out;
  }

 private:
  // Keeps what is left of input and output.
  void begin_stream() {
    if (BZ2_bzDecompressInit(&stream_, /*verbosity=*/0, /*small=*/0) != BZ_OK) throw std::bad_alloc();
    inside_stream_ = true;
  }
  bool take_more() {
    const std::string_view more = refill();
    stream_.next_in = const_cast<char*>(more.data());
    stream_.avail_in = static_cast<unsigned>(more.size());
    return !more.empty();
  }

  bz_stream stream_{};
  bool inside_stream_ = false, output_pending_ = false;
};

enum class Format { kPlain, kGzip, kZstd, kXz, kBzip2, kParquet };

Format format_of(std::string_view magic, const std::string& name) {
  const auto refuse = [&name](const char* what) {
    throw UserError(concat("'", name, "' is a ", what,
                           " file; JSONL is read plain or compressed with gzip, zstd, xz or bzip2, or as Parquet."),
                    ExitCode::kBadData);
  };
  if (magic.starts_with("\x1f\x8b")) return Format::kGzip;
  if (magic.starts_with("\x28\xb5\x2f\xfd")) return Format::kZstd;
  // A skippable frame of zstd (seekable files and pzstd begin with one): 0x184D2A50 to 0x184D2A5F.
  if (magic.size() >= 4 && (magic[0] & 0xf0) == 0x50 && magic.substr(1, 3) == "\x2a\x4d\x18") return Format::kZstd;
  if (magic.starts_with(std::string_view("\xfd"
                                         "7zXZ\0",
                                         6)))
    return Format::kXz;
  if (magic.starts_with("BZh") && magic.size() > 3 && magic[3] >= '1' && magic[3] <= '9') return Format::kBzip2;
  if (magic.starts_with("PK\x03\x04")) refuse("zip");
  if (magic.starts_with("7z\xbc\xaf\x27\x1c")) refuse("7z");
  if (magic.starts_with("Rar!\x1a\x07")) refuse("rar");
  if (magic.starts_with("\x04\x22\x4d\x18")) refuse("lz4");
  if (magic.starts_with("PAR1")) return Format::kParquet;
  return Format::kPlain;
}

}  // namespace

std::string shown_name(const std::string& path) { return path == "-" ? "standard input" : path; }

std::unique_ptr<InputStream> open_input(const std::string& path) {
  auto raw = std::make_unique<RawInput>(path);
  switch (format_of(raw->magic(), raw->name())) {
    case Format::kGzip: return std::make_unique<GzipInput>(std::move(raw));
    case Format::kZstd: return std::make_unique<ZstdInput>(std::move(raw));
    case Format::kXz: return std::make_unique<XzInput>(std::move(raw));
    case Format::kBzip2: return std::make_unique<Bzip2Input>(std::move(raw));
    case Format::kParquet:
      if (path == "-")
        throw UserError("Parquet cannot be read from standard input, because its index is at its end: name the file.",
                        ExitCode::kBadData);
      return open_parquet(path);
    case Format::kPlain: break;
  }
  return std::make_unique<PlainInput>(std::move(raw));
}

bool read_on(InputStream& stream, std::string& buffer) {
  constexpr size_t kBytes = size_t{1} << 18;
  const size_t before = buffer.size();
  buffer.resize(before + kBytes);
  const size_t got = stream.read(buffer.data() + before, kBytes);
  buffer.resize(before + got);
  return got > 0;
}

std::unique_ptr<InputStream> open_plain_input_at(const std::string& path, int64_t begin) {
  auto raw = std::make_unique<RawInput>(path);
  raw->seek(begin);
  return std::make_unique<PlainInput>(std::move(raw));
}

bool is_compressed(const std::string& path) {
  RawInput raw(path);
  return format_of(raw.magic(), raw.name()) != Format::kPlain;
}

}  // namespace espalier::data
