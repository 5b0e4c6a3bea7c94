#include "store/step_writer.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <iterator>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/thread_pool.h"
#include "store/internal/direct_file.h"
#include "store/run_folder.h"

namespace espalier::store {
namespace {

namespace fs = std::filesystem;

// A block is hashed and written in pieces, so that the second use finds it in the cache.
constexpr int64_t kPieceBytes = int64_t{1} << 20;

Block write_block(DirectFile& file, const uint8_t* tensor_data, int64_t offset, int64_t bytes) {
  Hasher hasher;
  for (int64_t done = 0; done < bytes;) {
    const int64_t piece = std::min(kPieceBytes, bytes - done);
    hasher.update(tensor_data + offset + done, static_cast<size_t>(piece));
    file.append(tensor_data + offset + done, piece);
    done += piece;
  }
  return {.offset = offset, .bytes = bytes, .checksum = hasher.digest()};
}

StoredTensor write_tensor(DirectFile& file, const TensorData& tensor) {
  StoredTensor stored{
      .name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .file = tensor.file, .blocks = {}};
  const int64_t bytes = stored.num_bytes();
  for (int64_t offset = 0; offset < bytes; offset += kBlockBytes)
    stored.blocks.push_back(
        write_block(file, static_cast<const uint8_t*>(tensor.data), offset, std::min(kBlockBytes, bytes - offset)));
  return stored;
}

// One safetensors file as the manifest will describe it.
struct TensorFile {
  StoredFile file;
  std::vector<StoredTensor> tensors;
};

TensorFile write_tensor_file(const fs::path& folder, const std::vector<const TensorData*>& tensors) {
  std::vector<TensorEntry> entries;
  for (const TensorData* tensor : tensors)
    entries.push_back({.name = tensor->name, .dtype = tensor->dtype, .shape = tensor->shape});
  const std::string header = safetensors_header(entries, {{"format", "pt"}});
  const auto header_bytes = static_cast<int64_t>(header.size());
  TensorFile result;
  DirectFile file(folder / tensors.front()->file);
  file.append(header.data(), header_bytes);
  for (const TensorData* tensor : tensors) result.tensors.push_back(write_tensor(file, *tensor));
  result.file = {.path = tensors.front()->file,
                 .bytes = file.position(),
                 .hashed_bytes = header_bytes,
                 .checksum = hash64(header)};
  file.finish();
  return result;
}

// While one thread waits for the disk, another has checksums to compute.
constexpr int kWriterThreads = 2;

void write_tensor_files(const fs::path& folder, const std::vector<std::vector<const TensorData*>>& groups,
                        Manifest& manifest) {
  ThreadPool pool(kWriterThreads);
  std::vector<std::future<TensorFile>> files;
  for (const auto& group : groups)
    files.push_back(pool.submit([&folder, &group] { return write_tensor_file(folder, group); }));
  for (std::future<TensorFile>& pending : files) {
    TensorFile written = pending.get();
    manifest.files.push_back(std::move(written.file));
    std::move(written.tensors.begin(), written.tensors.end(), std::back_inserter(manifest.tensors));
  }
}

void write_whole_file(const fs::path& folder, const std::string& path, const std::string& content) {
  OutputFile file(folder / path);
  file.write(content.data(), content.size());
  file.sync();
  file.close();
}

void write_extra_file(const fs::path& folder, const ExtraFile& extra, Manifest& manifest) {
  const fs::path target = folder / extra.path;
  fs::create_directories(target.parent_path());
  write_whole_file(folder, extra.path, extra.content);
  if (target.parent_path() != folder) fsync_directory(target.parent_path());
  const auto bytes = static_cast<int64_t>(extra.content.size());
  manifest.files.push_back(
      {.path = extra.path, .bytes = bytes, .hashed_bytes = bytes, .checksum = hash64(extra.content)});
}

// In the order in which the files first appear.
std::vector<std::vector<const TensorData*>> group_by_file(const std::vector<TensorData>& tensors) {
  std::vector<std::vector<const TensorData*>> groups;
  std::map<std::string, size_t> index;
  for (const TensorData& tensor : tensors) {
    const auto [found, is_new] = index.emplace(tensor.file, groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(&tensor);
  }
  return groups;
}

void write_partial(const fs::path& partial, Manifest& manifest, const std::vector<TensorData>& tensors,
                   const std::vector<ExtraFile>& extra_files) {
  fs::remove_all(partial);
  fs::create_directories(partial);
  manifest.files.clear(), manifest.tensors.clear();
  write_tensor_files(partial, group_by_file(tensors), manifest);
  for (const ExtraFile& extra : extra_files) write_extra_file(partial, extra, manifest);
  write_whole_file(partial, kManifestName, to_json(manifest));
  fsync_directory(partial);
}

}  // namespace

Manifest write_step(const fs::path& run_folder, Manifest manifest, const std::vector<TensorData>& tensors,
                    const std::vector<ExtraFile>& extra_files) {
  const int64_t step = manifest.state.step;
  const fs::path target = run_folder / step_folder_name(step);
  const fs::path partial = target.string() + ".partial";
  check_step_is_new(run_folder, step);
  try {
    write_partial(partial, manifest, tensors, extra_files);
    fs::rename(target.string() + ".partial", target);
    fsync_directory(run_folder);
  } catch (const std::exception& error) {
    std::error_code ignored;  // the reason that counts is the one that is thrown
    fs::remove_all(partial, ignored);
    throw UserError(concat("checkpoint '", target.string(), "' was not saved: ", error.what(),
                           ". Checkpoints saved earlier are untouched."),
                    ExitCode::kInputOutput);
  }
  return manifest;
}

void check_free_space(const fs::path& run_folder, int64_t needed_bytes, int64_t step) {
  struct statvfs status;
  if (::statvfs(run_folder.c_str(), &status) != 0)
    throw UserError(concat("cannot ask for the free space of '", run_folder.string(), "': ", std::strerror(errno)),
                    ExitCode::kInputOutput);
  const auto free_bytes = static_cast<int64_t>(status.f_bavail * status.f_frsize);
  if (free_bytes < needed_bytes)
    throw UserError(
        concat("no room for checkpoint ", step_folder_name(step), " in '", run_folder.string(), "': it needs ",
               format_count(needed_bytes), " bytes (", format_bytes(static_cast<double>(needed_bytes)), "), ",
               format_count(free_bytes), " (", format_bytes(static_cast<double>(free_bytes)),
               ") are free. Remove old ones with 'espalier checkpoint prune ", run_folder.string(),
               " --keep-last 1 --yes', or use another --save."),
        ExitCode::kCannotCreate);
}

void check_step_is_new(const fs::path& run_folder, int64_t step) {
  const fs::path target = run_folder / step_folder_name(step);
  if (fs::exists(target))
    throw UserError(concat("'", target.string(),
                           "' is already there, and a checkpoint is never rewritten. Continue that "
                           "run with --load ",
                           run_folder.string(), ", or use another --save."),
                    ExitCode::kCannotCreate);
}

}  // namespace espalier::store
