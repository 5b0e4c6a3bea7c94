#include "store/torch_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

#include "base/error.h"
#include "store/internal/pickle_reader.h"
#include "store/internal/zip_file.h"

namespace espalier::store {
namespace {

// 0x1950a86a20f9469cfc6c, the first value of the format before torch 1.6, as a pickle of protocol 2 has it.
constexpr std::array<uint8_t, 15> kOldMagic = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                               0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e};
constexpr int64_t kOldVersion = 1001;
constexpr uint32_t kBlockBytes = 1 << 20;

// Runs one pickle that begins where `input` is; what is wrong gets the place in the file.
struct Unpickled {
  TorchValue root;
  std::map<std::string, StorageUse> storages;
};

Unpickled unpickle(PickleInput& input, TorchNodes& nodes) {
  PickleReader reader(input, nodes);
  try {
    TorchValue root = reader.read();
    return {std::move(root), reader.storages()};
  } catch (const Refusal& refusal) {
    refuse_file("byte ", reader.step_position(), ": ", refusal.what);
  }
}

// Where each storage begins in the file.
void place_tensors(const TorchNodes& nodes, const std::map<std::string, int64_t>& places,
                   const std::filesystem::path& path) {
  for (const auto& node : nodes.all()) {
    auto* stored = std::get_if<std::unique_ptr<PickledTensor>>(&node->content);
    if (stored == nullptr) continue;
    (*stored)->view.file = path;
    (*stored)->view.offset += places.at((*stored)->storage);
  }
}

std::string content_of(const InputFile& file, const ZipEntry& entry) {
  std::string content(static_cast<size_t>(std::min<int64_t>(entry.size, 100)), '\0');
  file.read_at(content.data(), content.size(), entry.offset);
  return content;
}

// "archive" of "archive/data.pkl"; torch names it after the file.
std::string archive_name(const std::map<std::string, ZipEntry>& entries) {
  constexpr std::string_view kPickle = "/data.pkl";
  std::optional<std::string> found;
  for (const auto& [name, entry] : entries) {
    if (name.ends_with("/constants.pkl"))
      refuse_file("expected a file of torch.save, found a TorchScript program; save its state_dict() instead");
    if (!name.ends_with(kPickle)) continue;
    const std::string archive = name.substr(0, name.size() - kPickle.size());
    if (archive.find('/') != std::string::npos) continue;
    if (found) refuse_file("expected one data.pkl, found '", *found, kPickle, "' and '", name, "'");
    found = archive;
  }
  if (!found) refuse_file("expected an entry data.pkl, found none; not a file of torch.save");
  return *found;
}

// A flipped bit in the pickle could otherwise pass for another value. Tensors are not checked: that would read them.
void check_pickle_crc(const InputFile& file, const ZipEntry& entry) {
  uint32_t crc = 0;
  std::vector<char> block(kBlockBytes);
  for (int64_t done = 0; done < entry.size; done += kBlockBytes) {
    const auto size = static_cast<size_t>(std::min<int64_t>(entry.size - done, kBlockBytes));
    file.read_at(block.data(), size, entry.offset + done);
    crc = crc32(block.data(), size, crc);
  }
  if (crc != entry.crc)
    refuse_file("data.pkl: expected checksum ", entry.crc, ", found ", crc, "; the file is damaged");
}

TorchValue read_zip(const InputFile& file, const std::filesystem::path& path) {
  const std::map<std::string, ZipEntry> entries = read_zip_directory(file);
  const std::string archive = archive_name(entries) + "/";
  if (const auto order = entries.find(archive + "byteorder"); order != entries.end())
    if (const std::string found = content_of(file, order->second); found != "little")
      refuse_file("byteorder: expected little, found ", found);
  const ZipEntry& pickle = entries.at(archive + "data.pkl");
  check_pickle_crc(file, pickle);

  TorchNodes nodes;
  PickleInput input(file, pickle.offset, pickle.offset + pickle.size);
  const Unpickled unpickled = unpickle(input, nodes);
  if (input.left() != 0)
    refuse_file("data.pkl: expected its end at byte ", input.position(), ", found ", input.left(), " more");
  std::map<std::string, int64_t> places;
  for (const auto& [key, use] : unpickled.storages) {
    const auto entry = entries.find(archive + "data/" + key);
    if (entry == entries.end()) refuse_file("expected the storage '", archive, "data/", key, "', found none");
    const int64_t bytes = use.numel * size_bytes(use.dtype);
    if (entry->second.size != bytes)
      refuse_file("storage '", archive, "data/", key, "': expected ", bytes, " bytes for ", use.numel, " of ",
                  to_string(use.dtype), ", found ", entry->second.size);
    places[key] = entry->second.offset;
  }
  place_tensors(nodes, places, path);
  finish_tree(unpickled.root, nodes);
  return unpickled.root;
}

bool is_old_format(const InputFile& file) {
  std::array<uint8_t, kOldMagic.size()> start{};
  if (file.size_bytes() < static_cast<int64_t>(start.size())) return false;
  file.read_at(start.data(), start.size(), 0);
  start[1] = kOldMagic[1];  // whichever protocol
  return start == kOldMagic;
}

// A pickle of the header, or the list of storages: plain values.
TorchValue read_header_value(PickleInput& input) {
  TorchNodes nodes;
  const Unpickled unpickled = unpickle(input, nodes);
  if (!unpickled.storages.empty()) refuse_file("byte ", input.position(), ": expected plain values, found a storage");
  finish_tree(unpickled.root, nodes);
  return unpickled.root;
}

// After the magic number: version, facts of the machine, the value, the keys of the storages, then each storage as its
// number of elements and its bytes.
TorchValue read_old(const InputFile& file, const std::filesystem::path& path) {
  PickleInput input(file, kOldMagic.size(), file.size_bytes());
  const TorchValue version = read_header_value(input);
  if (version.kind() != TorchValue::Kind::kInt || version.as_int("") != kOldVersion)
    refuse_file("version of the format: expected ", kOldVersion, ", found ", version.describe());
  const TorchValue system = read_header_value(input);
  const TorchValue* little = system.find("little_endian");
  if (little == nullptr || little->kind() != TorchValue::Kind::kBool)
    refuse_file("facts of the machine: expected little_endian, found ", system.describe());
  if (!little->as_bool("")) refuse_file("byte order: expected little, found big");

  TorchNodes nodes;
  const Unpickled unpickled = unpickle(input, nodes);
  const TorchValue keys = read_header_value(input);
  if (keys.kind() != TorchValue::Kind::kList) refuse_file("expected the list of storages, found ", keys.describe());
  std::map<std::string, int64_t> places;
  int64_t position = input.position();
  for (const TorchValue& key_value : keys.items()) {
    if (!key_value.is_string()) refuse_file("expected the key of a storage, found ", key_value.describe());
    const std::string& key = key_value.as_string("");
    const auto use = unpickled.storages.find(key);
    if (use == unpickled.storages.end())
      refuse_file("storage ", key_value.describe(), ": expected one that a tensor uses");
    int64_t numel = 0;
    if (file.size_bytes() - position < 8)
      refuse_file("storage ", key, ": expected at byte ", position, ", found the end");
    file.read_at(&numel, sizeof numel, position);
    position += 8;
    if (numel != use->second.numel)
      refuse_file("storage ", key, ", byte ", position - 8, ": expected ", use->second.numel, " elements, found ",
                  numel);
    const int64_t bytes = numel * size_bytes(use->second.dtype);
    if (bytes > file.size_bytes() - position)
      refuse_file("storage ", key, ": expected ", bytes, " bytes at byte ", position, ", found ",
                  file.size_bytes() - position, "; the file is cut off");
    if (!places.emplace(key, position).second) refuse_file("storage ", key, ": occurs twice");
    position += bytes;
  }
  if (position != file.size_bytes())
    refuse_file("expected the end of the file at byte ", position, ", found ", file.size_bytes() - position,
                " more bytes");
  for (const auto& [key, use] : unpickled.storages)
    if (!places.contains(key)) refuse_file("storage ", key, ": expected in the list of storages, found none");
  place_tensors(nodes, places, path);
  finish_tree(unpickled.root, nodes);
  return unpickled.root;
}

[[noreturn]] void refuse_other_format(const InputFile& file) {
  std::string start(static_cast<size_t>(std::min<int64_t>(file.size_bytes(), 24)), '\0');
  file.read_at(start.data(), start.size(), 0);
  if (start.starts_with("version https://git-lfs"))
    refuse_file("expected a file of torch.save, found a pointer of Git LFS; fetch the file with 'git lfs pull'");
  if (file.size_bytes() == 0) refuse_file("expected a file of torch.save, found an empty file");
  refuse_file(
      "expected a file of torch.save (zip, or the pickle from before torch 1.6), found neither; it is cut off, "
      "damaged, "
      "or of another kind");
}

}  // namespace

TorchValue read_torch_file(const std::filesystem::path& path) {
  const InputFile file(path);
  try {
    if (is_zip_file(file)) return read_zip(file, path);
    if (is_old_format(file)) return read_old(file, path);
    refuse_other_format(file);
  } catch (const Refusal& refusal) {
    throw UserError(concat(path.string(), ": ", refusal.what), ExitCode::kBadData);
  }
}

std::map<std::string, TensorView> read_torch_state_dict(const std::filesystem::path& path) {
  const TorchValue root = read_torch_file(path);
  if (!root.is_dict())
    throw UserError(concat(path.string(), ": expected a dict of names and tensors, found ", root.describe()),
                    ExitCode::kBadData);
  std::map<std::string, TensorView> tensors;
  for (const auto& [name, value] : root.pairs()) {
    const std::string& key = name.as_string(path.string() + ": name of a tensor");
    tensors[key] = value.as_view(concat(path.string(), ": '", key, "'"));
  }
  return tensors;
}

}  // namespace espalier::store
