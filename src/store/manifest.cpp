#include "store/manifest.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <type_traits>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/json.h"

namespace espalier::store {
namespace {

// Keeps the order in which members were written, so that the file reads in the order of the structs.
using Json = nlohmann::ordered_json;

constexpr const char* kFormatName = "espalier-checkpoint";
constexpr const char* kChecksumMark = "\"checksum\": \"";
constexpr const char* kNoChecksum = "0000000000000000";

// More than any run reaches, and far enough below 2^63 that sums, and products with the length of a sample, fit.
constexpr int64_t kMostCount = 1'000'000'000'000'000;  // steps, samples, parameters
constexpr int64_t kMostTokens = int64_t{1} << 60;
constexpr int64_t kMostBytes = int64_t{1} << 60;

[[noreturn]] void refuse(const std::string& origin, const std::string& what) {
  throw UserError(concat(origin, ": ", what), ExitCode::kBadData);
}

Json encode(double value) { return value; }
Json encode(int64_t value) { return value; }
Json encode(const std::string& value) { return value; }

// Each returns what was expected where the value is of another kind, "" where it is right.
std::string decode(const Json& json, int64_t& value) {
  if (!json.is_number_integer()) return "an integer";
  if (json.is_number_unsigned() && json.get<uint64_t>() > std::numeric_limits<int64_t>::max()) return "less than 2^63";
  value = json;
  return "";
}
std::string decode(const Json& json, double& value) {
  if (!json.is_number()) return "a number";
  value = json;
  return "";
}
std::string decode(const Json& json, std::string& value) {
  if (!json.is_string()) return "text";
  value = json;
  return "";
}
// A path may have bytes that are not UTF-8. A save must not fail for that.
std::string text_json(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}
// Members that the first checkpoints of this format do not have; they are left at their default then.
bool may_be_missing(const std::string& name) {
  return name == "transport" || name == "instruction_set" || name == "mean_largest_lr" || name == "mean_weight" ||
         name == "step_statistics" || name == "evaluation_data";
}

// Members that the first checkpoints of this format have, and that nothing ever read.
bool is_obsolete(const std::string& name) { return name == "run_id" || name == "counts" || name == "sums"; }

template <class Struct>
Json encode_struct(const Struct& value) {
  Json object = Json::object();
  Struct::visit_fields(value, [&](const char* name, const auto& field) {
    const std::remove_cvref_t<decltype(field)> absent{};
    if (!may_be_missing(name) || field != absent) object[name] = encode(field);
  });
  return object;
}

// Takes members out of an object; finish() refuses what nobody asked for. A member that this program does not know
// would otherwise be lost silently.
class ObjectReader {
 public:
  ObjectReader(const Json& object, std::string where, const std::string& origin)
      : object_(object), where_(std::move(where)), origin_(origin) {
    if (!object.is_object()) refuse(origin_, concat(where_, ": expected an object, found ", object.type_name()));
  }

  const Json& at(const char* name) {
    seen_.insert(name);
    const auto found = object_.find(name);
    if (found == object_.end()) refuse(origin_, concat(where_, ".", name, ": expected a value, found nothing"));
    return *found;
  }

  template <class Value>
  void read(const char* name, Value& value) {
    if (may_be_missing(name) && !object_.contains(name)) return;
    const Json& json = at(name);
    const std::string expected = decode(json, value);
    if (!expected.empty()) refuse(origin_, concat(where_, ".", name, ": expected ", expected, ", found ", json.dump()));
  }

  const Json& array(const char* name) {
    const Json& json = at(name);
    if (!json.is_array()) refuse(origin_, concat(where_, ".", name, ": expected a list, found ", json.type_name()));
    return json;
  }

  void finish() {
    for (const auto& [key, value] : object_.items())
      if (!seen_.count(key) && !(where_ == "state" && is_obsolete(key)))
        refuse(origin_, concat(where_, ".", key, ": not known to format version ", kFormatVersion));
  }

 private:
  const Json& object_;
  std::string where_;
  const std::string& origin_;
  std::set<std::string> seen_;
};

template <class Struct>
void decode_struct(const Json& json, const std::string& where, const std::string& origin, Struct& value) {
  ObjectReader reader(json, where, origin);
  Struct::visit_fields(value, [&](const char* name, auto& field) { reader.read(name, field); });
  reader.finish();
}

// Counts that no run can have would overflow where they are added to, or name folders that nobody finds.
template <class Struct>
void check_counts(const Struct& value, const std::string& where, const std::string& origin) {
  Struct::visit_fields(value, [&](const std::string& name, const auto& field) {
    if constexpr (std::is_same_v<std::decay_t<decltype(field)>, int64_t>) {
      const int64_t most = name.ends_with("_tokens") ? kMostTokens : kMostCount;
      const int64_t least = name == "loss_scale_hysteresis_tracker" ? -kMostCount : 0;  // it continues below 0
      if (field < least || field > most)
        refuse(origin, concat(where, ".", name, ": expected ", least, " to ", most, ", found ", field));
    }
  });
}

uint64_t decode_checksum(const std::string& text, const std::string& where, const std::string& origin) {
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    refuse(origin, concat(where, ": expected 16 hexadecimal digits, found '", text, "'"));
  return std::strtoull(text.c_str(), nullptr, 16);
}

Json encode_file(const StoredFile& file) {
  return {
      {"path", file.path}, {"bytes", file.bytes}, {"hashed_bytes", file.hashed_bytes}, {"xxh3", hex64(file.checksum)}};
}

StoredFile decode_file(const Json& json, const std::string& where, const std::string& origin) {
  StoredFile file;
  std::string checksum;
  ObjectReader reader(json, where, origin);
  reader.read("path", file.path);
  reader.read("bytes", file.bytes);
  reader.read("hashed_bytes", file.hashed_bytes);
  reader.read("xxh3", checksum);
  reader.finish();
  file.checksum = decode_checksum(checksum, where + ".xxh3", origin);
  const std::filesystem::path path = file.path;
  const bool inside = !path.empty() && path.is_relative() &&
                      std::none_of(path.begin(), path.end(), [](const auto& part) { return part == ".."; });
  if (!inside) refuse(origin, concat(where, ".path: expected a path inside the checkpoint, found '", file.path, "'"));
  if (file.bytes < 0 || file.bytes > kMostBytes)
    refuse(origin, concat(where, ".bytes: expected 0 to ", kMostBytes, ", found ", file.bytes));
  if (file.hashed_bytes < 0 || file.hashed_bytes > file.bytes)
    refuse(origin, concat(where, ".hashed_bytes: expected 0 to ", file.bytes, ", found ", file.hashed_bytes));
  return file;
}

Json encode_tensor(const StoredTensor& tensor) {
  Json blocks = Json::array();
  for (const Block& block : tensor.blocks) blocks.push_back({block.offset, block.bytes, hex64(block.checksum)});
  return {{"name", tensor.name},
          {"dtype", to_string(tensor.dtype)},
          {"shape", tensor.shape},
          {"file", tensor.file},
          {"blocks", blocks}};
}

Block decode_block(const Json& json, const std::string& where, const std::string& origin) {
  if (!json.is_array() || json.size() != 3 || !json[0].is_number_integer() || !json[1].is_number_integer() ||
      !json[2].is_string())
    refuse(origin, concat(where, ": expected [offset, bytes, checksum], found ", json.dump()));
  Block block;
  if (!decode(json[0], block.offset).empty() || !decode(json[1], block.bytes).empty())
    refuse(origin, concat(where, ": expected offset and bytes of less than 2^63, found ", json.dump()));
  block.checksum = decode_checksum(json[2], where, origin);
  return block;
}

// The blocks of a tensor follow one another and end where it ends.
void check_blocks(const StoredTensor& tensor, const std::string& where, const std::string& origin) {
  int64_t position = 0;
  for (const Block& block : tensor.blocks) {
    if (block.offset != position || block.bytes <= 0 || block.bytes > kMostBytes - position)
      refuse(origin, concat(where, ".blocks: expected a block at byte ", position, ", found ", block.bytes,
                            " bytes at ", block.offset));
    position += block.bytes;
  }
  if (position != tensor.num_bytes())
    refuse(origin, concat(where, ".blocks: expected ", tensor.num_bytes(), " bytes in all, found ", position));
}

StoredTensor decode_tensor(const Json& json, const std::string& at, const std::string& origin) {
  StoredTensor tensor;
  std::string dtype;
  ObjectReader reader(json, at, origin);
  reader.read("name", tensor.name);
  reader.read("dtype", dtype);
  reader.read("file", tensor.file);
  const std::string where = "tensor '" + tensor.name + "'";
  const std::optional<DType> known = dtype_from_string(dtype);
  if (!known) refuse(origin, concat(where, ".dtype: expected a type of safetensors, found '", dtype, "'"));
  tensor.dtype = *known;
  int64_t bytes = size_bytes(tensor.dtype);
  for (const Json& json_size : reader.array("shape")) {
    int64_t size = -1;
    if (!decode(json_size, size).empty() || size < 0)
      refuse(origin, concat(where, ".shape: expected sizes, found ", json_size.dump()));
    if (__builtin_mul_overflow(bytes, size, &bytes) || bytes > kMostBytes)
      refuse(origin, concat(where, ".shape: expected at most ", kMostBytes, " bytes, found ", json.at("shape").dump()));
    tensor.shape.push_back(size);
  }
  for (const Json& block : reader.array("blocks"))
    tensor.blocks.push_back(decode_block(block, where + ".blocks", origin));
  reader.finish();
  check_blocks(tensor, where, origin);
  return tensor;
}

// One line per element: a manifest of thousands of tensors stays searchable.
template <class Element, class Encode>
std::string lines(const std::vector<Element>& elements, Encode encode_element) {
  std::string text = "[";
  for (const Element& element : elements)
    text += (text.size() == 1 ? "\n    " : ",\n    ") + encode_element(element).dump();
  return text + (elements.empty() ? "]" : "\n  ]");
}

void check_manifest_checksum(const std::string& text, const std::string& origin) {
  const size_t mark = text.find(kChecksumMark);
  const size_t digits = mark + std::string(kChecksumMark).size();
  if (mark == std::string::npos || digits + 16 > text.size())
    refuse(origin, "checksum: expected 16 digits, found none; this is not a checkpoint manifest, or it is damaged");
  const std::string found = text.substr(digits, 16);
  std::string zeroed = text;
  zeroed.replace(digits, 16, kNoChecksum);
  const std::string expected = hex64(hash64(zeroed));
  if (found != expected)
    refuse(origin, concat("checksum: the file says ", found, ", its content has ", expected, "; it is damaged"));
}

void decode_header(ObjectReader& reader, Manifest& manifest, const std::string& origin) {
  std::string format;
  reader.read("format", format);
  if (format != kFormatName) refuse(origin, concat("format: expected '", kFormatName, "', found '", format, "'"));
  reader.read("version", manifest.version);
  if (manifest.version < 1 || manifest.version > kFormatVersion)
    refuse(origin, concat("version: this program reads 1 to ", kFormatVersion, ", found ", manifest.version,
                          "; use the release that wrote it, or a newer one"));
}

void check_unique_and_known(const Manifest& manifest, const std::string& origin) {
  std::map<std::string, int64_t> room;  // of each file, for tensors that are still to come
  std::set<std::string> tensors;
  for (const StoredFile& file : manifest.files)
    if (!room.emplace(file.path, file.bytes - file.hashed_bytes).second)
      refuse(origin, concat("files: '", file.path, "' is listed twice"));
  for (const StoredTensor& tensor : manifest.tensors) {
    if (!tensors.insert(tensor.name).second) refuse(origin, concat("tensors: '", tensor.name, "' is listed twice"));
    const auto file = room.find(tensor.file);
    if (file == room.end())
      refuse(origin, concat("tensor '", tensor.name, "'.file: '", tensor.file, "' is not in the list of files"));
    if ((file->second -= tensor.num_bytes()) < 0)
      refuse(origin, concat("files: '", tensor.file, "' is ", -file->second, " bytes too short for its tensors up to '",
                            tensor.name, "'"));
  }
}

}  // namespace

int64_t StoredTensor::num_elements() const {
  int64_t product = 1;
  for (const int64_t size : shape) product *= size;
  return product;
}

const StoredTensor* Manifest::find(const std::string& name) const {
  for (const StoredTensor& tensor : tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

const StoredFile* Manifest::find_file(const std::string& path) const {
  for (const StoredFile& file : files)
    if (file.path == path) return &file;
  return nullptr;
}

int64_t Manifest::tensor_bytes() const {
  int64_t bytes = 0;
  for (const StoredTensor& tensor : tensors) bytes += tensor.num_bytes();
  return bytes;
}

std::string to_json(const Manifest& manifest) {
  std::string text =
      concat("{\n  \"format\": \"", kFormatName, "\",\n  \"version\": ", manifest.version, ",\n  ", kChecksumMark,
             kNoChecksum, "\",\n  \"model\": ", encode_struct(manifest.model).dump(),
             ",\n  \"state\": ", encode_struct(manifest.state).dump(), ",\n  \"config\": ", text_json(manifest.config),
             ",\n  \"files\": ", lines(manifest.files, encode_file),
             ",\n  \"tensors\": ", lines(manifest.tensors, encode_tensor), "\n}\n");
  text.replace(text.find(kChecksumMark) + std::string(kChecksumMark).size(), 16, hex64(hash64(text)));
  return text;
}

Manifest manifest_from_json(const std::string& text, const std::string& origin) {
  check_manifest_checksum(text, origin);
  const Json json = parse_json<Json>(text, origin);
  Manifest manifest;
  ObjectReader reader(json, "manifest", origin);
  decode_header(reader, manifest, origin);
  reader.at("checksum");
  decode_struct(reader.at("model"), "model", origin, manifest.model);
  decode_struct(reader.at("state"), "state", origin, manifest.state);
  check_counts(manifest.model, "model", origin);
  check_counts(manifest.state, "state", origin);
  if (!(manifest.state.loss_scale > 0) || !std::isfinite(manifest.state.loss_scale))
    refuse(origin, concat("state.loss_scale: expected a positive number, found ", manifest.state.loss_scale));
  reader.read("config", manifest.config);
  for (const Json& file : reader.array("files")) manifest.files.push_back(decode_file(file, "files", origin));
  for (const Json& tensor : reader.array("tensors"))
    manifest.tensors.push_back(decode_tensor(tensor, "tensors", origin));
  reader.finish();
  check_unique_and_known(manifest, origin);
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& step_folder) {
  const std::filesystem::path path = step_folder / kManifestName;
  return manifest_from_json(read_file(path), path.string());
}

std::string describe(DType dtype, const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(std::to_string(size));
  return to_string(dtype) + " [" + join(sizes, ", ") + "]";
}

std::string weights_file(const std::string& group) { return "weights-" + group + ".safetensors"; }
std::string optimizer_file(const std::string& group) { return "optimizer-" + group + ".safetensors"; }
bool is_weight(const StoredTensor& tensor) { return tensor.file.rfind("optimizer-", 0) != 0; }

std::string ema_of(const std::string& weight) { return weight + ".ema"; }

void check_has_ema(const Manifest& manifest, const std::string& option) {
  for (const StoredTensor& tensor : manifest.tensors)
    if (is_weight(tensor) && manifest.find(ema_of(tensor.name)) == nullptr)
      throw UserError(
          concat(option, ": the checkpoint of step ", manifest.state.step, " holds no moving average of '", tensor.name,
                 "'; train with --ema DECAY keeps one. Leave ", option, " out to use the weights."),
          ExitCode::kUsage);
}

}  // namespace espalier::store
