#include "store/internal/new_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "base/error.h"

namespace espalier::store {
namespace {

std::filesystem::path temporary_of(const std::filesystem::path& path) { return path.string() + ".tmp"; }

}  // namespace

NewFile::NewFile(const std::filesystem::path& path) : path_(path), output_(temporary_of(path)) {}

NewFile::~NewFile() {
  std::error_code ignored;
  if (!committed_) std::filesystem::remove(temporary_of(path_), ignored);
}

void NewFile::commit() {
  output_.sync();
  output_.close();
  if (std::rename(temporary_of(path_).c_str(), path_.c_str()) != 0)
    throw UserError(concat("cannot rename '", temporary_of(path_).string(), "': ", std::strerror(errno)),
                    ExitCode::kInputOutput);
  committed_ = true;
  fsync_directory(path_.has_parent_path() ? path_.parent_path() : ".");
}

void produce_all(const TensorSource& source, const ByteSink& sink) {
  int64_t produced = 0;
  source.produce([&](const void* data, size_t size) {
    produced += static_cast<int64_t>(size);
    ESPALIER_CHECK(produced <= source.num_bytes(), produced, " bytes of a tensor of ", source.num_bytes());
    sink(data, size);
  });
  ESPALIER_CHECK(produced == source.num_bytes(), produced, " bytes of a tensor of ", source.num_bytes());
}

}  // namespace espalier::store
