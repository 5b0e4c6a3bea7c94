#include "store/step_writer.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <iterator>
#include <memory>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/thread_pool.h"
#include "store/internal/direct_file.h"
#include "store/internal/step_parts.h"
#include "store/run_folder.h"

namespace espalier::store {
namespace {

namespace fs = std::filesystem;

// A block is made, hashed and written in pieces, so that the second use finds it in the cache.
constexpr int64_t kWritePieceBytes = int64_t{1} << 20;

// One safetensors file: its header, and the place of each of its tensors.
struct TensorFile {
  std::string path;
  std::string header;
  std::vector<size_t> tensors;
  std::vector<int64_t> begins;  // of the tensors, from the start of the file
  int64_t bytes = 0;
};

// In the order in which the files first appear.
std::vector<TensorFile> lay_out_files(const std::vector<TensorFacts>& tensors) {
  std::vector<TensorFile> files;
  std::map<std::string, size_t> index;
  for (size_t number = 0; number < tensors.size(); ++number) {
    const auto [found, is_new] = index.emplace(tensors[number].file, files.size());
    if (is_new) files.push_back({.path = tensors[number].file, .header = {}, .tensors = {}, .begins = {}});
    files[found->second].tensors.push_back(number);
  }
  for (TensorFile& file : files) {
    std::vector<TensorEntry> entries;
    for (const size_t number : file.tensors)
      entries.push_back({.name = tensors[number].name, .dtype = tensors[number].dtype, .shape = tensors[number].shape});
    file.header = safetensors_header(entries, {{"format", "pt"}});
    const auto header_bytes = static_cast<int64_t>(file.header.size());
    for (const TensorEntry& entry : entries) file.begins.push_back(header_bytes + entry.begin);
    file.bytes = header_bytes + (entries.empty() ? 0 : entries.back().end);
  }
  return files;
}

// `room`, of kWritePieceBytes, takes what is made here.
Block write_block(DirectFile& file, const BlockData& block, const MakeBytes& make, uint8_t* room) {
  Hasher hasher;
  for (int64_t done = 0; done < block.bytes;) {
    const int64_t piece = std::min(kWritePieceBytes, block.bytes - done);
    const uint8_t* data = room;
    if (block.data != nullptr)
      data = static_cast<const uint8_t*>(block.data) + done;
    else
      make(block.tensor, block.offset + done, piece, room);
    hasher.update(data, static_cast<size_t>(piece));
    file.append(data, piece);
    done += piece;
  }
  return {.offset = block.offset, .bytes = block.bytes, .checksum = hasher.digest()};
}

// A block and where it begins in its file.
struct PlacedBlock {
  const BlockData* block;
  int64_t begin;
};

// What this process has to write of a file.
struct FilePart {
  const TensorFile* file;
  std::vector<PlacedBlock> blocks;  // by position
};

std::vector<FilePart> parts_of(const std::vector<TensorFile>& files, const StepContent& content) {
  std::vector<std::vector<const BlockData*>> by_tensor(content.tensors.size());
  for (const BlockData& block : content.blocks) by_tensor.at(block.tensor).push_back(&block);
  std::vector<FilePart> parts;
  for (const TensorFile& file : files) {
    parts.push_back({.file = &file, .blocks = {}});
    for (size_t i = 0; i < file.tensors.size(); ++i)
      for (const BlockData* block : by_tensor[file.tensors[i]])
        parts.back().blocks.push_back({block, file.begins[i] + block->offset});
    std::sort(parts.back().blocks.begin(), parts.back().blocks.end(),
              [](const PlacedBlock& a, const PlacedBlock& b) { return a.begin < b.begin; });
  }
  return parts;
}

std::vector<WrittenBlock> write_file_part(const fs::path& partial, const FilePart& part, const MakeBytes& make,
                                          const Writers& writers) {
  std::vector<WrittenBlock> written;
  if (part.blocks.empty() && writers.rank != 0) return written;
  if (writers.count > 1) check_not_aborted(partial);
  DirectFile file(partial / part.file->path, part.file->bytes);
  if (writers.rank == 0) file.append(part.file->header.data(), static_cast<int64_t>(part.file->header.size()));
  const std::unique_ptr<uint8_t[]> room(make ? new uint8_t[kWritePieceBytes] : nullptr);
  for (const PlacedBlock& placed : part.blocks) {
    if (file.position() != placed.begin) file.seek(placed.begin);
    written.push_back({placed.block->tensor, write_block(file, *placed.block, make, room.get())});
  }
  file.finish();
  return written;
}

std::vector<WrittenBlock> write_own_blocks(const fs::path& partial, const std::vector<TensorFile>& files,
                                           const StepContent& content, const Writers& writers) {
  const std::vector<FilePart> parts = parts_of(files, content);
  ThreadPool pool(kWriterThreads);
  std::vector<std::future<std::vector<WrittenBlock>>> pending;
  for (const FilePart& part : parts)
    pending.push_back(pool.submit([&] { return write_file_part(partial, part, content.make, writers); }));
  std::vector<WrittenBlock> all;
  for (auto& future : pending) {
    const std::vector<WrittenBlock> written = future.get();
    all.insert(all.end(), written.begin(), written.end());
  }
  return all;
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

// Tensors in the order of their data, each with all its blocks.
void describe_tensors(const std::vector<TensorFile>& files, const StepContent& content,
                      const std::vector<WrittenBlock>& written, Manifest& manifest) {
  std::vector<std::vector<Block>> blocks(content.tensors.size());
  for (const WrittenBlock& one : written) blocks.at(one.tensor).push_back(one.block);
  for (const TensorFile& file : files) {
    manifest.files.push_back({.path = file.path,
                              .bytes = file.bytes,
                              .hashed_bytes = static_cast<int64_t>(file.header.size()),
                              .checksum = hash64(file.header)});
    for (const size_t number : file.tensors) {
      const TensorFacts& tensor = content.tensors[number];
      std::vector<Block>& own = blocks[number];
      std::sort(own.begin(), own.end(), [](const Block& a, const Block& b) { return a.offset < b.offset; });
      int64_t position = 0;
      for (const Block& block : own) {
        ESPALIER_CHECK(block.offset == position, tensor.name, ": block at ", block.offset, ", expected at ", position);
        position += block.bytes;
      }
      ESPALIER_CHECK(position == tensor.num_bytes(), tensor.name, ": ", position, " of ", tensor.num_bytes(), " bytes");
      manifest.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.file, std::move(own)});
    }
  }
}

void write_and_commit(const fs::path& run_folder, const StepContent& content, const Writers& writers) {
  const fs::path partial = partial_folder(run_folder, content.manifest.state.step);
  const fs::path target = run_folder / step_folder_name(content.manifest.state.step);
  if (writers.rank != 0) await_begin(partial, writers);
  const std::vector<TensorFile> files = lay_out_files(content.tensors);
  std::vector<WrittenBlock> written = write_own_blocks(partial, files, content, writers);
  if (writers.rank != 0) {
    leave_part(partial, writers, written);
    await_commit(partial, target, writers);
    return;
  }
  const std::vector<WrittenBlock> others = collect_parts(partial, writers);
  written.insert(written.end(), others.begin(), others.end());
  Manifest manifest = content.manifest;
  manifest.files.clear(), manifest.tensors.clear();
  describe_tensors(files, content, written, manifest);
  for (const ExtraFile& extra : content.extra_files) write_extra_file(partial, extra, manifest);
  write_whole_file(partial, kManifestName, to_json(manifest));
  fsync_directory(partial);
  fs::rename(partial, target);
  fsync_directory(run_folder);
}

}  // namespace

int64_t TensorFacts::num_elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

fs::path partial_folder(const fs::path& run_folder, int64_t step) {
  return run_folder / (step_folder_name(step) + ".partial");
}

void begin_step(const fs::path& run_folder, int64_t step) {
  check_step_is_new(run_folder, step);
  const fs::path partial = partial_folder(run_folder, step);
  try {
    fs::remove_all(partial);
    fs::create_directories(partial);
  } catch (const fs::filesystem_error& error) {
    throw UserError(concat("cannot create '", partial.string(), "': ", error.code().message()),
                    ExitCode::kCannotCreate);
  }
}

void write_step(const fs::path& run_folder, const StepContent& content, const Writers& writers) {
  const int64_t step = content.manifest.state.step;
  try {
    write_and_commit(run_folder, content, writers);
  } catch (const std::exception& error) {
    const std::string reason = abort_step(partial_folder(run_folder, step), writers, error.what());
    throw UserError(concat("checkpoint '", (run_folder / step_folder_name(step)).string(), "' was not saved: ", reason,
                           ". Checkpoints saved earlier are untouched."),
                    ExitCode::kInputOutput);
  }
}

void write_step(const fs::path& run_folder, const Manifest& manifest, const std::vector<TensorFacts>& tensors,
                const MakeBytes& make, const std::vector<ExtraFile>& extra_files) {
  StepContent content{.manifest = manifest, .tensors = tensors, .blocks = {}, .extra_files = extra_files, .make = make};
  for (size_t number = 0; number < tensors.size(); ++number) {
    const int64_t bytes = tensors[number].num_bytes();
    for (int64_t offset = 0; offset < bytes; offset += kBlockBytes)
      content.blocks.push_back({.tensor = number, .offset = offset, .bytes = std::min(kBlockBytes, bytes - offset)});
  }
  begin_step(run_folder, manifest.state.step);
  write_step(run_folder, content, {});
}

void write_step(const fs::path& run_folder, const Manifest& manifest, const std::vector<TensorData>& tensors,
                const std::vector<ExtraFile>& extra_files) {
  std::vector<TensorFacts> facts;
  for (const TensorData& tensor : tensors) facts.push_back({tensor.name, tensor.file, tensor.dtype, tensor.shape});
  const auto copy = [&](size_t tensor, int64_t offset, int64_t bytes, void* destination) {
    std::memcpy(destination, static_cast<const uint8_t*>(tensors[tensor].data) + offset, static_cast<size_t>(bytes));
  };
  write_step(run_folder, manifest, facts, copy, extra_files);
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
