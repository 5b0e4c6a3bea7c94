#include "store/step_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/progress.h"
#include "base/thread_pool.h"
#include "store/gentle_verify.h"
#include "store/internal/direct_memory.h"
#include "store/run_folder.h"

namespace espalier::store {
namespace {

namespace fs = std::filesystem;

// A block is read and hashed in pieces, so that the second use finds it in the cache.
constexpr int64_t kReadPieceBytes = int64_t{1} << 20;
// Past the cache a device is read in larger pieces, which begin and end where its own blocks do.
constexpr int64_t kDirectPieceBytes = int64_t{4} << 20;
constexpr int64_t kDirectAlignment = 4096;
// No header of ours is longer; a manifest that says otherwise must not become an allocation.
constexpr int64_t kLongestHashedHeader = 100'000'008;

// Lets through no more bytes a second than a rate; 0: all.
class Pace {
 public:
  explicit Pace(double bytes_per_second) : bytes_per_second_(bytes_per_second) {}
  void wait_for(int64_t bytes) {
    if (bytes_per_second_ <= 0) return;
    const double before = static_cast<double>(bytes_.fetch_add(bytes));
    std::this_thread::sleep_until(begin_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                               std::chrono::duration<double>(before / bytes_per_second_)));
  }

 private:
  const double bytes_per_second_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::atomic<int64_t> bytes_ = 0;
};

}  // namespace

// A file of the checkpoint, open for reading. Where every tensor begins is taken from its own header, which the
// manifest's checksum covers.
struct StepReader::OpenFile {
  explicit OpenFile(fs::path file_path) : path(std::move(file_path)) {
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO must not keep it waiting
    if (descriptor < 0)
      throw UserError(
          concat(path.string(), ": expected by ", kManifestName, ", cannot be opened: ", std::strerror(errno)),
          errno == ENOENT ? ExitCode::kMissingInput : ExitCode::kInputOutput);
  }
  ~OpenFile() {
    ::close(descriptor);
    if (direct_descriptor >= 0) ::close(direct_descriptor);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int64_t size() const {
    std::error_code ignored;
    if (const std::string kind = kind_of_no_file(fs::status(path, ignored).type()); !kind.empty())
      throw UserError(concat(path.string(), ": expected a regular file, found ", kind), ExitCode::kBadData);
    struct stat status;
    ESPALIER_CHECK(::fstat(descriptor, &status) == 0, path.string(), ": ", std::strerror(errno));
    return status.st_size;
  }

  void read(void* destination, int64_t bytes, int64_t offset) const {
    auto* to = static_cast<char*>(destination);
    while (bytes > 0) {
      const ssize_t got = ::pread(descriptor, to, static_cast<size_t>(bytes), offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0)
        throw UserError(
            concat(path.string(), ": cannot read ", bytes, " bytes at ", offset, ": ", std::strerror(errno)),
            ExitCode::kInputOutput);
      if (got == 0)
        throw UserError(concat(path.string(), ": expected ", bytes, " more bytes at ", offset, ", the file ends there"),
                        ExitCode::kBadData);
      to += got, offset += got, bytes -= got;
    }
  }

  // Some file systems have no such descriptors: then the cache is used.
  void open_direct() { direct_descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT); }

  // By way of an aligned buffer of kDirectPieceBytes.
  void read_past_cache(char* buffer, uint8_t* to, int64_t bytes, int64_t offset) const {
    while (bytes > 0) {
      const int64_t skipped = offset % kDirectAlignment;
      const int64_t wanted = (skipped + bytes + kDirectAlignment - 1) / kDirectAlignment * kDirectAlignment;
      const ssize_t got = ::pread(direct_descriptor, buffer, static_cast<size_t>(std::min(wanted, kDirectPieceBytes)),
                                  offset - skipped);
      if (got < 0 && errno == EINTR) continue;
      if (got <= skipped) return read(to, bytes, offset);  // which says what is wrong, or can
      const int64_t taken = std::min<int64_t>(got - skipped, bytes);
      std::memcpy(to, buffer + skipped, static_cast<size_t>(taken));
      to += taken, offset += taken, bytes -= taken;
    }
  }

  // Both ends of a range; also where the system cannot say.
  bool has_in_cache(int64_t begin, int64_t bytes) const {
    for (const int64_t at : {begin, begin + bytes - 1}) {
      char byte;
      const iovec one{&byte, 1};
      if (::preadv2(descriptor, &one, 1, at, RWF_NOWAIT) < 0 && errno == EAGAIN) return false;
    }
    return true;
  }

  fs::path path;
  int descriptor = -1, direct_descriptor = -1;
  std::map<std::string, int64_t> tensor_begins;  // from the start of the file
};

// Of kDirectPieceBytes each, as many as threads read at a time.
struct StepReader::Buffers {
  DirectMemory take() {
    const std::lock_guard lock(mutex);
    if (free.empty()) return make_direct_memory(kDirectPieceBytes);
    DirectMemory one = std::move(free.back());
    free.pop_back();
    return one;
  }
  void give_back(DirectMemory one) {
    const std::lock_guard lock(mutex);
    free.push_back(std::move(one));
  }

  std::mutex mutex;
  std::vector<DirectMemory> free;
};

namespace {

// Begin of every tensor of a file: they follow one another in the order in which the manifest names them, so the
// header need not be parsed; its checksum proves that it is the one that was written.
std::map<std::string, int64_t> tensor_begins(const Manifest& manifest, const StoredFile& file) {
  std::map<std::string, int64_t> begins;
  int64_t position = file.hashed_bytes;
  for (const StoredTensor& tensor : manifest.tensors)
    if (tensor.file == file.path) begins[tensor.name] = position, position += tensor.num_bytes();
  if (!begins.empty() && position != file.bytes)
    throw UserError(
        concat(kManifestName, ": '", file.path, "': expected ", position, " bytes for its tensors, found ", file.bytes),
        ExitCode::kBadData);
  return begins;
}

// The step that a folder's name says, whatever follows a dot (".superseded").
std::optional<int64_t> step_of_name(const fs::path& folder) {
  const std::string name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  return step_of_folder(name.substr(0, name.find('.')));
}

}  // namespace

StepReader::StepReader(const fs::path& step_folder)
    : folder_(step_folder),
      manifest_(read_manifest(step_folder)),
      mutex_(std::make_unique<std::mutex>()),
      buffers_(std::make_unique<Buffers>()) {
  const std::optional<int64_t> named = step_of_name(step_folder);
  if (named && *named != manifest_.state.step)
    throw UserError(
        concat("'", step_folder.string(), "' is named as step ", *named, ", and its ", kManifestName,
               " belongs to step ", manifest_.state.step,
               ": it was renamed, or files of two checkpoints are mixed. If they belong to one, its name is ",
               step_folder_name(manifest_.state.step)),
        ExitCode::kBadData);
}
StepReader::~StepReader() = default;
StepReader::StepReader(StepReader&&) noexcept = default;

void StepReader::use_cache(PageCache how) {
  const std::lock_guard lock(*mutex_);
  cache_ = how;
  if (how == PageCache::kFilled) return;
  for (const auto& [path, file] : files_)
    if (file != nullptr && file->direct_descriptor < 0) file->open_direct();
}

const StepReader::OpenFile& StepReader::open(const std::string& path) {
  const std::lock_guard lock(*mutex_);
  std::unique_ptr<OpenFile>& slot = files_[path];
  if (slot != nullptr) return *slot;
  const StoredFile* expected = manifest_.find_file(path);
  ESPALIER_CHECK(expected != nullptr, path);
  auto file = std::make_unique<OpenFile>(folder_ / path);
  if (const int64_t size = file->size(); size != expected->bytes)
    throw UserError(concat(file->path.string(), ": expected ", format_count(expected->bytes), " bytes, found ",
                           format_count(size), size < expected->bytes ? "; it is cut off" : "; it is too long"),
                    ExitCode::kBadData);
  if (expected->hashed_bytes > kLongestHashedHeader)
    throw UserError(concat(file->path.string(), ": expected a header of at most ", kLongestHashedHeader,
                           " bytes, found ", expected->hashed_bytes),
                    ExitCode::kBadData);
  std::string head(static_cast<size_t>(expected->hashed_bytes), '\0');
  file->read(head.data(), expected->hashed_bytes, 0);
  if (const uint64_t found = hash64(head); found != expected->checksum)
    throw UserError(concat(file->path.string(), expected->hashed_bytes == expected->bytes ? "" : ": header",
                           ": expected checksum ", hex64(expected->checksum), ", found ", hex64(found)),
                    ExitCode::kBadData);
  file->tensor_begins = tensor_begins(manifest_, *expected);
  if (cache_ != PageCache::kFilled) file->open_direct();
  slot = std::move(file);
  return *slot;
}

void StepReader::check_files(const std::vector<std::string>& paths) {
  Problems problems;
  for (const std::string& path : paths) {
    try {
      open(path);
    } catch (const UserError& error) {
      problems.add(error.what());
    }
  }
  problems.raise(ExitCode::kBadData);
}

void StepReader::read_block(const StoredTensor& tensor, size_t index, void* destination) {
  const OpenFile& file = open(tensor.file);
  const Block& block = tensor.blocks.at(index);
  const int64_t begin = file.tensor_begins.at(tensor.name) + block.offset;
  const bool is_direct = cache_ != PageCache::kFilled && file.direct_descriptor >= 0 &&
                         (cache_ == PageCache::kAvoided || !file.has_in_cache(begin, block.bytes));
  DirectMemory buffer;
  if (is_direct)
    buffer = buffers_->take();
  else  // a hint: read ahead of the checksums
    ::posix_fadvise(file.descriptor, begin, block.bytes, POSIX_FADV_WILLNEED);
  Hasher hasher;
  for (int64_t done = 0; done < block.bytes;) {
    // The first piece past the cache is shorter, so that the others are aligned.
    const int64_t most = is_direct ? kDirectPieceBytes - (begin + done) % kDirectAlignment : kReadPieceBytes;
    const int64_t piece = std::min(most, block.bytes - done);
    uint8_t* to = static_cast<uint8_t*>(destination) + done;
    if (is_direct)
      file.read_past_cache(buffer.get(), to, piece, begin + done);
    else
      file.read(to, piece, begin + done);
    hasher.update(to, static_cast<size_t>(piece));
    done += piece;
  }
  if (is_direct) buffers_->give_back(std::move(buffer));
  if (const uint64_t found = hasher.digest(); found != block.checksum)
    throw UserError(concat(file.path.string(), ": tensor '", tensor.name, "', block ", index + 1, " of ",
                           tensor.blocks.size(), " (bytes ", begin, " to ", begin + block.bytes,
                           " of the file): expected checksum ", hex64(block.checksum), ", found ", hex64(found)),
                    ExitCode::kBadData);
}

std::string StepReader::read_extra_file(const std::string& path) const {
  const StoredFile* expected = manifest_.find_file(path);
  if (expected == nullptr) {
    std::vector<std::string> paths;
    for (const StoredFile& file : manifest_.files) paths.push_back(file.path);
    throw UserError(concat("checkpoint '", folder_.string(), "' has no file '", path, "'; it has ", join(paths, ", ")),
                    ExitCode::kMissingInput);
  }
  if (const int64_t size = file_size_bytes(folder_ / path); size != expected->bytes)
    throw UserError(concat((folder_ / path).string(), ": expected ", expected->bytes, " bytes, found ", size),
                    ExitCode::kBadData);
  std::string content = read_file(folder_ / path);
  const uint64_t found = hash64(content);
  if (static_cast<int64_t>(content.size()) != expected->bytes || found != expected->checksum)
    throw UserError(concat((folder_ / path).string(), ": expected ", expected->bytes, " bytes with checksum ",
                           hex64(expected->checksum), ", found ", content.size(), " bytes with ", hex64(found)),
                    ExitCode::kBadData);
  return content;
}

void StepReader::check_extra_files(const std::string& prefix) const {
  std::error_code ignored;
  for (const StoredFile& file : manifest_.files)
    if (file.path.starts_with(prefix) && fs::exists(folder_ / file.path, ignored)) read_extra_file(file.path);
}

namespace {

std::vector<std::string> verify(const fs::path& step_folder, int num_threads, bool weights_only,
                                double bytes_per_second) {
  std::vector<std::string> problems;
  try {
    StepReader reader(step_folder);
    Pace pace(bytes_per_second);
    if (bytes_per_second > 0) reader.use_cache(PageCache::kAvoided);
    const Manifest& manifest = reader.manifest();
    std::set<std::string> broken;  // files whose tensors need no look
    const auto wanted = [&](const std::string& path) { return !weights_only || path.rfind("optimizer-", 0) != 0; };
    for (const StoredFile& file : manifest.files) {
      if (!wanted(file.path)) continue;
      try {
        reader.check_files({file.path});
      } catch (const UserError& error) {
        problems.push_back(error.what());
        broken.insert(file.path);
      }
    }
    Progress progress("verify " + step_folder.filename().string(), manifest.tensor_bytes(), Progress::Unit::kBytes);
    ThreadPool pool(num_threads);
    std::vector<std::future<void>> results;
    for (const StoredTensor& tensor : manifest.tensors) {
      if (!wanted(tensor.file) || broken.count(tensor.file)) continue;
      for (size_t block = 0; block < tensor.blocks.size(); ++block)
        results.push_back(pool.submit([&reader, &tensor, &progress, &pace, block] {
          pace.wait_for(tensor.blocks[block].bytes);
          std::vector<uint8_t> content(static_cast<size_t>(tensor.blocks[block].bytes));
          reader.read_block(tensor, block, content.data());
          progress.advance(tensor.blocks[block].bytes);
        }));
    }
    for (std::future<void>& result : results) {
      try {
        result.get();
      } catch (const UserError& error) {
        problems.push_back(error.what());
      }
    }
    progress.finish();
  } catch (const UserError& error) {
    problems.push_back(error.what());
  }
  return problems;
}

}  // namespace

std::vector<std::string> verify_step(const fs::path& step_folder, int num_threads, bool weights_only) {
  return verify(step_folder, num_threads, weights_only, /*bytes_per_second=*/0);
}

std::vector<std::string> verify_step_gently(const fs::path& step_folder, double bytes_per_second) {
  return verify(step_folder, /*num_threads=*/1, /*weights_only=*/false, bytes_per_second);
}

}  // namespace espalier::store
