#include "curate/byte_sink.h"

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <new>
#include <vector>

namespace espalier::curate {
namespace {

constexpr size_t kSinkBytes = size_t{1} << 18;

class PlainSink : public ByteSink {
 public:
  explicit PlainSink(const std::string& path) : file_(path) { buffer_.reserve(2 * kSinkBytes); }
  void write(std::string_view bytes) override {
    buffer_ += bytes;
    if (buffer_.size() >= kSinkBytes) flush();
  }
  void finish() override {
    flush();
    file_.sync();
    file_.close();
  }

 private:
  void flush() {
    file_.write(buffer_.data(), buffer_.size());
    buffer_.clear();
  }

  OutputFile file_;
  std::string buffer_;
};

// What the compressors share: input is turned into output until none is left.
class CompressedSink : public ByteSink {
 public:
  explicit CompressedSink(const std::string& path) : plain_(path), out_(kSinkBytes) {}
  void write(std::string_view bytes) override { run(bytes, /*last=*/false); }
  void finish() override {
    run({}, /*last=*/true);
    plain_.finish();
  }

 protected:
  // Takes from `bytes` and fills `out`; true when they yield nothing more.
  virtual bool step(std::string_view& bytes, bool last, char* out, size_t capacity, size_t& written) = 0;

 private:
  void run(std::string_view bytes, bool last) {
    for (bool done = false; !done;) {
      size_t written = 0;
      done = step(bytes, last, out_.data(), out_.size(), written);
      plain_.write({out_.data(), written});
    }
  }

  PlainSink plain_;
  std::vector<char> out_;
};

class GzipSink : public CompressedSink {
 public:
  explicit GzipSink(const std::string& path) : CompressedSink(path) {
    constexpr int kWindowBits = 15, kGzipOnly = 16, kMemoryLevel = 8;
    if (deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kWindowBits + kGzipOnly, kMemoryLevel,
                     Z_DEFAULT_STRATEGY) != Z_OK)
      throw std::bad_alloc();
  }
  ~GzipSink() override { deflateEnd(&stream_); }

 protected:
  bool step(std::string_view& bytes, bool last, char* out, size_t capacity, size_t& written) override {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(capacity);
    const int status = deflate(&stream_, last ? Z_FINISH : Z_NO_FLUSH);
    bytes.remove_prefix(bytes.size() - stream_.avail_in);
    written = capacity - stream_.avail_out;
    return last ? status == Z_STREAM_END : stream_.avail_out > 0;
  }

 private:
  z_stream stream_{};
};

class ZstdSink : public CompressedSink {
 public:
  explicit ZstdSink(const std::string& path) : CompressedSink(path), stream_(ZSTD_createCCtx()) {
    if (stream_ == nullptr) throw std::bad_alloc();
  }
  ~ZstdSink() override { ZSTD_freeCCtx(stream_); }

 protected:
  bool step(std::string_view& bytes, bool last, char* out, size_t capacity, size_t& written) override {
    ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
    ZSTD_outBuffer buffer{out, capacity, 0};
    const size_t left = ZSTD_compressStream2(stream_, &buffer, &in, last ? ZSTD_e_end : ZSTD_e_continue);
    if (ZSTD_isError(left)) throw std::bad_alloc();
    bytes.remove_prefix(in.pos);
    written = buffer.pos;
    return last ? left == 0 : bytes.empty();
  }

 private:
  ZSTD_CCtx* stream_;
};

class XzSink : public CompressedSink {
 public:
  explicit XzSink(const std::string& path) : CompressedSink(path) {
    if (lzma_easy_encoder(&stream_, LZMA_PRESET_DEFAULT, LZMA_CHECK_CRC64) != LZMA_OK) throw std::bad_alloc();
  }
  ~XzSink() override { lzma_end(&stream_); }

 protected:
  bool step(std::string_view& bytes, bool last, char* out, size_t capacity, size_t& written) override {
    stream_.next_in = reinterpret_cast<const uint8_t*>(bytes.data());
    stream_.avail_in = bytes.size();
    stream_.next_out = reinterpret_cast<uint8_t*>(out);
    stream_.avail_out = capacity;
    const lzma_ret status = lzma_code(&stream_, last ? LZMA_FINISH : LZMA_RUN);
    if (status == LZMA_MEM_ERROR) throw std::bad_alloc();
    bytes.remove_prefix(bytes.size() - stream_.avail_in);
    written = capacity - stream_.avail_out;
    return last ? status == LZMA_STREAM_END : bytes.empty();
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
};

class Bzip2Sink : public CompressedSink {
 public:
  explicit Bzip2Sink(const std::string& path) : CompressedSink(path) {
    constexpr int kBlocks = 9;
    if (BZ2_bzCompressInit(&stream_, kBlocks, 0, 0) != BZ_OK) throw std::bad_alloc();
  }
  ~Bzip2Sink() override { BZ2_bzCompressEnd(&stream_); }

 protected:
  bool step(std::string_view& bytes, bool last, char* out, size_t capacity, size_t& written) override {
    stream_.next_in = const_cast<char*>(bytes.data());
    stream_.avail_in = static_cast<unsigned>(bytes.size());
    stream_.next_out = out;
    stream_.avail_out = static_cast<unsigned>(capacity);
    if (!last && bytes.empty()) return true;
    const int status = BZ2_bzCompress(&stream_, last ? BZ_FINISH : BZ_RUN);
    bytes.remove_prefix(bytes.size() - stream_.avail_in);
    written = capacity - stream_.avail_out;
    return last ? status == BZ_STREAM_END : bytes.empty();
  }

 private:
  bz_stream stream_{};
};

}  // namespace

std::unique_ptr<ByteSink> byte_sink(const std::string& file, const std::string& name) {
  if (name.ends_with(".gz")) return std::make_unique<GzipSink>(file);
  if (name.ends_with(".zst")) return std::make_unique<ZstdSink>(file);
  if (name.ends_with(".xz")) return std::make_unique<XzSink>(file);
  if (name.ends_with(".bz2")) return std::make_unique<Bzip2Sink>(file);
  return std::make_unique<PlainSink>(file);
}

}  // namespace espalier::curate
