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
#include "base/log.h"
#include "base/thread_pool.h"
#include "store/internal/direct_file.h"
#include "store/internal/page_edges.h"
#include "store/internal/plain_errors.h"
#include "store/internal/read_back.h"
#include "store/internal/step_files.h"
#include "store/internal/step_parts.h"
#include "store/run_folder.h"

namespace espalier::store {
namespace {

namespace fs = std::filesystem;

// A block is made, hashed and written in pieces, so that the second use finds it in the cache.
constexpr int64_t kWritePieceBytes = int64_t{1} << 20;

// `room`, of kWritePieceBytes, takes what is made here.
Block write_block(DirectFile& file, const OwnBlock& block, const MakeBytes& make, uint8_t* room) {
  Hasher hasher;
  for (int64_t done = 0; done < block.bytes;) {
    const int64_t piece = std::min(kWritePieceBytes, block.bytes - done);
    make(block.tensor, block.offset + done, piece, room);
    hasher.update(room, static_cast<size_t>(piece));
    file.append(room, piece);
    done += piece;
  }
  return {.offset = block.offset, .bytes = block.bytes, .checksum = hasher.digest()};
}

WrittenPart write_file_part(const fs::path& partial, const FilePart& part, const MakeBytes& make,
                            const Writers& writers) {
  WrittenPart written;
  if (part.blocks.empty() && writers.rank != 0) return written;
  if (writers.count > 1) check_not_aborted(partial);
  DirectFile file(partial / part.file->path, part.file->bytes);
  if (writers.count > 1) file.keep_edges();
  if (writers.rank == 0) file.append(part.file->header.data(), static_cast<int64_t>(part.file->header.size()));
  const std::unique_ptr<uint8_t[]> room(new uint8_t[kWritePieceBytes]);
  for (const PlacedBlock& placed : part.blocks) {
    if (file.position() != placed.begin) file.seek(placed.begin);
    written.blocks.push_back({placed.block->tensor, write_block(file, *placed.block, make, room.get())});
  }
  file.finish();
  if (writers.count > 1) written.edges.push_back({part.number, file.take_edges()});
  return written;
}

// Runs `work` for every file, a few at a time, and waits for all.
template <class Work>
void for_each_part(const std::vector<FilePart>& parts, const Work& work) {
  ThreadPool pool(kWriterThreads);
  std::vector<std::future<void>> pending;
  for (size_t index = 0; index < parts.size(); ++index) pending.push_back(pool.submit([&, index] { work(index); }));
  for (std::future<void>& one : pending) one.get();
}

// One for each of `parts`.
std::vector<WrittenPart> write_own_blocks(const fs::path& partial, const std::vector<FilePart>& parts,
                                          const StepContent& content, const Writers& writers) {
  std::vector<WrittenPart> written(parts.size());
  for_each_part(parts,
                [&](size_t index) { written[index] = write_file_part(partial, parts[index], content.make, writers); });
  return written;
}

// Each of what this process wrote, when everybody has written; the headers by rank 0.
void read_own_blocks(const fs::path& partial, const std::vector<FilePart>& parts,
                     const std::vector<WrittenPart>& written, const StepContent& content, const Writers& writers) {
  for_each_part(parts, [&](size_t index) {
    const FilePart& part = parts[index];
    std::vector<WrittenRange> ranges;
    if (writers.rank == 0)
      ranges.push_back({.begin = 0,
                        .bytes = static_cast<int64_t>(part.file->header.size()),
                        .checksum = hash64(part.file->header),
                        .what = "header"});
    for (size_t number = 0; number < part.blocks.size(); ++number) {
      const Block& block = written[index].blocks[number].block;
      ranges.push_back({.begin = part.blocks[number].begin,
                        .bytes = block.bytes,
                        .checksum = block.checksum,
                        .what = concat("tensor '", content.tensors[part.blocks[number].block->tensor].name, "'")});
    }
    if (writers.count > 1) check_not_aborted(partial);
    read_back(partial / part.file->path, ranges);
  });
}

WrittenPart joined(const std::vector<WrittenPart>& parts) {
  WrittenPart all;
  for (const WrittenPart& part : parts) {
    all.blocks.insert(all.blocks.end(), part.blocks.begin(), part.blocks.end());
    all.edges.insert(all.edges.end(), part.edges.begin(), part.edges.end());
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

// Small files, as they should be.
void read_back_whole(const fs::path& folder, const std::string& path, const std::string& content) {
  if (content.empty()) return;
  read_back(
      folder / path,
      {{.begin = 0, .bytes = static_cast<int64_t>(content.size()), .checksum = hash64(content), .what = "the file"}});
}

// The rename has made it a checkpoint: from here on nothing can be taken back, and nothing is lost by going on.
void commit(const fs::path& partial, const fs::path& target) {
  fsync_directory(partial);
  fs::rename(partial, target);
  try {
    fsync_directory(target.parent_path());
  } catch (const UserError& error) {
    log_warning("checkpoint '", target.string(), "' is saved and complete, but ", error.what(),
                ": if the machine loses power now, its new name may be lost (it would be found as ",
                partial.filename().string(), "). Check the disk.");
  }
}

void write_and_commit(const fs::path& run_folder, const StepContent& content, const Writers& writers) {
  const fs::path partial = partial_folder(run_folder, content.manifest.state.step);
  const fs::path target = run_folder / step_folder_name(content.manifest.state.step);
  if (writers.rank != 0) await_begin(partial, writers);
  const std::vector<TensorFile> files = lay_out_files(content.tensors);
  const std::vector<FilePart> parts = parts_of(files, content);
  const std::vector<WrittenPart> own = write_own_blocks(partial, parts, content, writers);
  WrittenPart written = joined(own);
  if (writers.rank != 0) {
    leave_part(partial, writers, written);
    if (content.read_back) {
      await_written(partial, writers);
      read_own_blocks(partial, parts, own, content, writers);
      leave_read(partial, writers);
    }
    await_commit(partial, target, writers);
    return;
  }
  collect_parts(partial, writers, written);
  write_edges(partial, files, std::move(written.edges));
  if (content.read_back) {
    say_written(partial, writers);
    read_own_blocks(partial, parts, own, content, writers);
    collect_reads(partial, writers);
  }
  Manifest manifest = content.manifest;
  manifest.files.clear(), manifest.tensors.clear();
  describe_tensors(files, content, written.blocks, manifest);
  for (const ExtraFile& extra : content.extra_files) write_extra_file(partial, extra, manifest);
  const std::string manifest_text = to_json(manifest);
  write_whole_file(partial, kManifestName, manifest_text);
  if (content.read_back) {
    for (const ExtraFile& extra : content.extra_files) read_back_whole(partial, extra.path, extra.content);
    read_back_whole(partial, kManifestName, manifest_text);
  }
  commit(partial, target);
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

void begin_step(const fs::path& run_folder, int64_t step, int64_t needed_bytes) {
  check_step_is_new(run_folder, step);
  const fs::path partial = partial_folder(run_folder, step);
  try {
    fs::remove_all(partial);  // first: the room that it takes is this save's
    if (needed_bytes > 0) check_free_space(run_folder, needed_bytes, step);
    if (const std::error_code error = create_folders(run_folder)) throw fs::filesystem_error("", run_folder, error);
    fs::create_directory(partial);  // its name is synced with that of the checkpoint
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
    // What could not be read, of an average or a conversion, is not what could not be written.
    const auto* const known = dynamic_cast<const UserError*>(&error);
    const bool is_of_source =
        known != nullptr && (known->code() == ExitCode::kBadData || known->code() == ExitCode::kMissingInput);
    const ExitCode code = is_of_source ? known->code() : ExitCode::kInputOutput;
    const std::string reason = abort_step(partial_folder(run_folder, step), writers, plain_text(error));
    throw UserError(concat("checkpoint '", (run_folder / step_folder_name(step)).string(), "' was not saved: ", reason,
                           ". Checkpoints saved earlier are untouched."),
                    code);
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
  if (free_bytes >= needed_bytes) return;
  const bool has_old_ones = !list_steps(run_folder).complete.empty();
  throw UserError(
      concat("no room for checkpoint ", step_folder_name(step), " in '", run_folder.string(), "': it needs ",
             format_count(needed_bytes), " bytes (", format_bytes(static_cast<double>(needed_bytes)), "), ",
             format_count(free_bytes), " (", format_bytes(static_cast<double>(free_bytes)), ") are free. ",
             has_old_ones ? concat("Remove old ones with 'espalier checkpoint prune ", run_folder.string(),
                                   " --keep-last 1 --yes', or use another --save.")
                          : std::string("Make room there, or use another --save.")),
      ExitCode::kCannotCreate);
}

void check_step_is_new(const fs::path& run_folder, int64_t step) {
  const fs::path target = run_folder / step_folder_name(step);
  std::error_code ignored;
  if (!fs::exists(target, ignored)) return;
  if (!fs::exists(target / kManifestName, ignored))
    throw UserError(concat("'", target.string(), "' exists without a ", kManifestName,
                           " (a copy that was interrupted?), and it is not overwritten. Move it out of the way, or "
                           "start the run again: it then renames the folder and continues."),
                    ExitCode::kCannotCreate);
  throw UserError(concat("'", target.string(),
                         "' already exists, and a checkpoint is never rewritten. Continue that run with --load ",
                         run_folder.string(), ", or use another --save."),
                  ExitCode::kCannotCreate);
}

}  // namespace espalier::store
