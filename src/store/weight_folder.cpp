#include "store/weight_folder.h"

#include <algorithm>
#include <array>
#include <future>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "store/internal/direct_file.h"
#include "store/internal/new_file.h"
#include "store/torch_file.h"

namespace espalier::store {
namespace {

using nlohmann::json;
using Tensors = std::map<std::string, TensorView>;

constexpr std::array<const char*, 4> kNames = {"model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
                                               "pytorch_model.bin.index.json"};
constexpr int kShownProblems = 20;

[[noreturn]] void refuse_weights(const std::filesystem::path& path, const std::string& what) {
  throw UserError(concat(path.string(), ": ", what), ExitCode::kBadData);
}

Tensors open_safetensors(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  Tensors tensors;
  for (const TensorEntry& entry : file.entries())
    tensors[entry.name] = {.dtype = entry.dtype,
                           .shape = entry.shape,
                           .strides = contiguous_strides(entry.shape),
                           .file = path,
                           .offset = file.data_offset() + entry.begin};
  return tensors;
}

Tensors open_file(const std::filesystem::path& path) {
  return path.extension() == ".safetensors" ? open_safetensors(path) : read_torch_state_dict(path);
}

// name -> file name
std::map<std::string, std::string> read_index(const std::filesystem::path& path) {
  std::set<std::string> names;
  std::string twice;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key && depth == 2 && !names.insert(value.get<std::string>()).second)
      twice = value.get<std::string>();
    return true;
  };
  json index = espalier::parse_json(read_file(path), path.string(), watch);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object())
    refuse_weights(path, "expected an object with a weight_map, found none");
  if (!twice.empty()) refuse_weights(path, concat("'", twice, "' occurs twice"));
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string())
      refuse_weights(path, concat("weight_map: '", name, "': expected a file name, found another type"));
    const std::string text = file;
    if (text.empty() || text == ".." || text == "." || text.find('/') != std::string::npos ||
        text.find('\0') != std::string::npos)
      refuse_weights(path,
                     concat("weight_map: '", name, "': expected the name of a file next to it, found '", text, "'"));
    files[name] = text;
  }
  return files;
}

// At most kShownProblems, and how many more there are.
void raise_all(const std::filesystem::path& path, const std::vector<std::string>& messages) {
  if (messages.empty()) return;
  Problems problems;
  for (size_t i = 0; i < std::min<size_t>(messages.size(), kShownProblems); ++i)
    problems.add(path.string(), ": ", messages[i]);
  if (messages.size() > kShownProblems) problems.add("and ", messages.size() - kShownProblems, " more");
  problems.raise(ExitCode::kBadData);
}

Tensors open_shards(const std::filesystem::path& index_path) {
  const std::map<std::string, std::string> files = read_index(index_path);
  std::set<std::string> shards;
  for (const auto& [name, file] : files) shards.insert(file);
  std::vector<std::string> problems;
  for (const std::string& shard : shards)
    if (!std::filesystem::exists(index_path.parent_path() / shard))
      problems.push_back(concat("expected the file '", shard, "' next to it, found none"));
  raise_all(index_path, problems);

  Tensors tensors;
  for (const std::string& shard : shards) {
    const std::filesystem::path path = index_path.parent_path() / shard;
    for (auto& [name, view] : open_file(path)) {
      const auto [place, fresh] = tensors.emplace(name, view);
      if (!fresh)
        problems.push_back(
            concat("'", name, "' is in both '", place->second.file.filename().string(), "' and '", shard, "'"));
    }
  }
  const bool ambiguous = !problems.empty();
  for (const auto& [name, file] : files) {
    const auto found = tensors.find(name);
    if (found == tensors.end())
      problems.push_back(concat("expected '", name, "' in '", file, "', found none"));
    else if (const std::string other = found->second.file.filename(); other != file && !ambiguous)
      problems.push_back(concat("expected '", name, "' in '", file, "', found it in '", other, "'"));
  }
  raise_all(index_path, problems);
  return tensors;
}

std::string shard_name(size_t number, size_t count) {
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", number, count);
  return name.data();
}

using NamedSource = std::pair<std::string, TensorSource>;

// The numbers of the first tensors of the shards, and of the end.
std::vector<size_t> shard_borders(const std::vector<NamedSource>& tensors, int64_t max_shard_bytes) {
  std::vector<size_t> borders = {0};
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const int64_t next = tensors[i].second.num_bytes();
    if (i > borders.back() && bytes + next > max_shard_bytes) borders.push_back(i), bytes = 0;
    bytes += next;
  }
  borders.push_back(tensors.size());
  return borders;
}

// Tensors [begin, end), which are one after the other from byte `offset` of their file on.
struct TensorRun {
  size_t begin, end;
  int64_t offset;
};

// Of tensors [begin, end) with their entries: what one thread writes at a time.
std::vector<TensorRun> runs_of(const std::vector<TensorEntry>& entries, size_t begin, int64_t data_offset) {
  constexpr int64_t kRunBytes = int64_t{32} << 20;
  std::vector<TensorRun> runs;
  int64_t run_begin = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (runs.empty() || entries[i].begin - run_begin >= kRunBytes) {
      run_begin = entries[i].begin;
      runs.push_back({begin + i, begin + i, data_offset + run_begin});
    }
    ++runs.back().end;
  }
  return runs;
}

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedSource>& tensors, size_t begin,
                       size_t end) {
  std::vector<TensorEntry> entries;
  for (size_t i = begin; i < end; ++i)
    entries.push_back({.name = tensors[i].first, .dtype = tensors[i].second.dtype, .shape = tensors[i].second.shape});
  const std::string header = safetensors_header(entries, {{"format", "pt"}});
  const int64_t file_bytes = static_cast<int64_t>(header.size()) + (entries.empty() ? 0 : entries.back().end);
  NewFile file(path);
  file.output().write(header.data(), header.size());
  ThreadPool pool(kWriterThreads);
  std::vector<std::future<void>> pending;
  for (const TensorRun& run : runs_of(entries, begin, static_cast<int64_t>(header.size())))
    pending.push_back(pool.submit([&, run] {
      DirectFile output(file.output().path(), file_bytes);  // the page cache would cost a core more than all else does
      output.seek(run.offset);
      for (size_t i = run.begin; i < run.end; ++i)
        produce_all(tensors[i].second,
                    [&](const void* data, size_t size) { output.append(data, static_cast<int64_t>(size)); });
      output.flush();
    }));
  for (std::future<void>& one : pending) one.get();
  file.commit();
}

}  // namespace

std::map<std::string, TensorView> open_weights(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return path.extension() == ".json" ? open_shards(path) : open_file(path);
  for (const std::string name : kNames)
    if (std::filesystem::exists(path / name)) return open_weights(path / name);
  throw UserError(concat(path.string(), ": expected ", kNames[0], ", ", kNames[1], ", ", kNames[2], " or ", kNames[3],
                         ", found none of them"),
                  ExitCode::kMissingInput);
}

std::vector<std::string> write_weights(const std::filesystem::path& folder, const std::vector<NamedSource>& tensors,
                                       int64_t max_shard_bytes) {
  std::set<std::string> names;
  for (const auto& [name, source] : tensors) ESPALIER_CHECK(names.insert(name).second, "'", name, "' twice");
  for (const char* name : kNames)
    if (std::filesystem::exists(folder / name))
      throw UserError(concat(folder.string(), ": expected no weights yet, found ", name, ". Choose another folder"),
                      ExitCode::kCannotCreate);
  const std::vector<size_t> borders = shard_borders(tensors, max_shard_bytes);
  const size_t count = borders.size() - 1;
  std::vector<std::string> files;
  json weight_map = json::object();
  int64_t total_bytes = 0;
  for (size_t shard = 0; shard < count; ++shard) {
    files.push_back(count == 1 ? kNames[0] : shard_name(shard + 1, count));
    write_safetensors(folder / files.back(), tensors, borders[shard], borders[shard + 1]);
    for (size_t i = borders[shard]; i < borders[shard + 1]; ++i) {
      weight_map[tensors[i].first] = files.back();
      total_bytes += tensors[i].second.num_bytes();
    }
  }
  if (count > 1) {
    files.push_back(kNames[1]);
    const json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", weight_map}};
    write_file_atomically(folder / files.back(), index.dump(2) + "\n");
  }
  return files;
}

}  // namespace espalier::store
