#include "store/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "base/lfs_pointer.h"

namespace espalier::store {
namespace {

using nlohmann::json;

struct DTypeRow {
  DType dtype;
  const char* name;
  int64_t bytes;
};
constexpr std::array<DTypeRow, 10> kDTypes = {{{DType::kFloat32, "F32", 4},
                                               {DType::kFloat16, "F16", 2},
                                               {DType::kBFloat16, "BF16", 2},
                                               {DType::kFloat64, "F64", 8},
                                               {DType::kInt64, "I64", 8},
                                               {DType::kInt32, "I32", 4},
                                               {DType::kInt16, "I16", 2},
                                               {DType::kInt8, "I8", 1},
                                               {DType::kUInt8, "U8", 1},
                                               {DType::kBool, "BOOL", 1}}};

const DTypeRow& row_of(DType dtype) {
  for (const DTypeRow& row : kDTypes)
    if (row.dtype == dtype) return row;
  ESPALIER_CHECK(false, "dtype ", static_cast<int>(dtype));
}

// The format's own limit, so that a damaged length does not become an allocation.
constexpr uint64_t kLongestHeader = 100'000'000;
constexpr size_t kDataAlignment = 64;

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
  throw UserError(concat(path.string(), ": ", what), ExitCode::kBadData);
}

uint64_t header_length(const MappedFile& file, const std::filesystem::path& path) {
  const std::string_view start(reinterpret_cast<const char*>(file.data()), std::min<size_t>(file.size(), 1024));
  if (const auto pointer = describe_lfs_pointer(path, start)) throw UserError(*pointer, ExitCode::kBadData);
  if (file.size() < 8)
    refuse(path, concat("header length: expected 8 bytes, file has ", file.size(), "; not a safetensors file"));
  uint64_t length = 0;  // little endian, as every machine this runs on
  std::memcpy(&length, file.data(), 8);
  if (length > kLongestHeader)
    refuse(path, concat("header length: expected at most ", kLongestHeader, ", found ", length,
                        "; not a safetensors file, or damaged"));
  if (length > file.size() - 8)
    refuse(path, concat("header: expected ", length, " bytes after the length, file has ", file.size() - 8,
                        "; it is cut off"));
  return length;
}

// nlohmann keeps the last of two equal keys silently.
json parse_header(const char* text, uint64_t length, const std::filesystem::path& path) {
  std::set<std::string> names;
  std::string twice;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key && depth == 1 && !names.insert(value.get<std::string>()).second)
      twice = value.get<std::string>();
    return true;
  };
  const json header = espalier::parse_json(std::string_view(text, length), path.string() + ": header", watch);
  if (!header.is_object()) refuse(path, concat("header: expected a JSON object, found ", header.type_name()));
  if (!twice.empty()) refuse(path, concat("header: tensor '", twice, "' occurs twice"));
  return header;
}

int64_t non_negative(const json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<int64_t>::max()
             ? value.get<int64_t>()
             : -1;
}

std::vector<int64_t> parse_shape(const json& value) {
  std::vector<int64_t> shape;
  for (const json& size : value) shape.push_back(non_negative(size));
  return shape;
}

// Bytes of a tensor, or -1 where the product does not fit.
int64_t tensor_bytes(const std::vector<int64_t>& shape, DType dtype) {
  int64_t bytes = size_bytes(dtype);
  for (const int64_t size : shape)
    if (__builtin_mul_overflow(bytes, size, &bytes)) return -1;
  return bytes;
}

TensorEntry parse_entry(const std::string& name, const json& value, const std::filesystem::path& path) {
  const std::string where = "tensor '" + name + "': ";
  const auto field = [&](const char* key, bool right_type, const char* expected) {
    if (!right_type)
      refuse(path, concat(where, key, ": expected ", expected, ", found ",
                          value.is_object() && value.contains(key) ? value[key].dump() : "nothing"));
  };
  const bool object = value.is_object();
  const auto has = [&](const char* key, auto is_type) { return object && value.contains(key) && is_type(value[key]); };
  field("dtype", has("dtype", [](const json& v) { return v.is_string(); }), "a type name");
  const auto sizes = [](const json& v) {
    return v.is_array() && std::all_of(v.begin(), v.end(), [](const json& size) { return non_negative(size) >= 0; });
  };
  field("shape", has("shape", sizes), "a list of sizes");
  field("data_offsets", has("data_offsets", [&](const json& v) { return sizes(v) && v.size() == 2; }), "[begin, end]");

  TensorEntry entry;
  entry.name = name;
  const std::string type = value["dtype"];
  const auto row = std::find_if(kDTypes.begin(), kDTypes.end(), [&](const DTypeRow& r) { return type == r.name; });
  if (row == kDTypes.end()) {
    std::vector<std::string> known;
    for (const DTypeRow& r : kDTypes) known.push_back(r.name);
    refuse(path, concat(where, "dtype: expected one of ", join(known, ", "), ", found '", type, "'"));
  }
  entry.dtype = row->dtype;
  entry.shape = parse_shape(value["shape"]);
  entry.begin = non_negative(value["data_offsets"][0]);
  entry.end = non_negative(value["data_offsets"][1]);
  const int64_t expected = tensor_bytes(entry.shape, entry.dtype);
  if (expected < 0) refuse(path, concat(where, "shape: ", value["shape"].dump(), " is more than 2^63 bytes"));
  if (entry.end - entry.begin != expected)
    refuse(path, concat(where, "data_offsets: expected ", expected, " bytes for ", type, " ", value["shape"].dump(),
                        ", found ", entry.end - entry.begin, " (", entry.begin, " to ", entry.end, ")"));
  return entry;
}

// The data must be covered exactly once and to its end.
void check_layout(const std::vector<TensorEntry>& entries, int64_t data_bytes, const std::filesystem::path& path) {
  int64_t position = 0;
  const TensorEntry* previous = nullptr;
  for (const TensorEntry& entry : entries) {
    const std::string after = previous == nullptr ? "the start" : "'" + previous->name + "'";
    if (entry.begin < position)
      refuse(path, concat("tensor '", entry.name, "': overlaps ", after, ": expected to begin at ", position,
                          ", found ", entry.begin));
    if (entry.begin > position)
      refuse(path, concat("tensor '", entry.name, "': hole after ", after, ": expected to begin at ", position,
                          ", found ", entry.begin));
    position = entry.end, previous = &entry;
  }
  if (data_bytes < position) {
    for (const TensorEntry& entry : entries)
      if (entry.end > data_bytes)
        refuse(path, concat("data: expected ", position, " bytes, found ", data_bytes, "; cut off in tensor '",
                            entry.name, "' (", entry.begin, " to ", entry.end, ")"));
  }
  if (data_bytes > position)
    refuse(path, concat("data: expected ", position, " bytes, found ", data_bytes, "; too long"));
}

std::map<std::string, std::string> parse_metadata(const json& value, const std::filesystem::path& path) {
  std::map<std::string, std::string> metadata;
  if (!value.is_object()) refuse(path, concat("__metadata__: expected an object, found ", value.type_name()));
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) refuse(path, concat("__metadata__: '", key, "': expected text, found ", text.dump()));
    metadata[key] = text;
  }
  return metadata;
}

}  // namespace

int64_t size_bytes(DType dtype) { return row_of(dtype).bytes; }
std::string to_string(DType dtype) { return row_of(dtype).name; }

std::optional<DType> dtype_from_string(const std::string& name) {
  for (const DTypeRow& row : kDTypes)
    if (name == row.name) return row.dtype;
  return std::nullopt;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const uint64_t length = header_length(file_, path);
  const json header = parse_header(reinterpret_cast<const char*>(file_.data()) + 8, length, path);
  data_offset_ = static_cast<int64_t>(8 + length);
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__")
      metadata_ = parse_metadata(value, path);
    else
      entries_.push_back(parse_entry(name, value, path));
  }
  std::sort(entries_.begin(), entries_.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_layout(entries_, static_cast<int64_t>(file_.size()) - data_offset_, path);
}

const TensorEntry* SafetensorsFile::find(const std::string& name) const {
  for (const TensorEntry& entry : entries_)
    if (entry.name == name) return &entry;
  return nullptr;
}

std::string safetensors_header(std::vector<TensorEntry>& entries, const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) text += "\"__metadata__\":" + json(metadata).dump() + ",";
  int64_t position = 0;
  for (TensorEntry& entry : entries) {
    const int64_t bytes = tensor_bytes(entry.shape, entry.dtype);
    ESPALIER_CHECK(bytes >= 0, entry.name);
    entry.begin = position;
    entry.end = position += bytes;
    text +=
        concat(json(entry.name).dump(), ":{\"dtype\":\"", to_string(entry.dtype),
               "\",\"shape\":", json(entry.shape).dump(), ",\"data_offsets\":[", entry.begin, ",", entry.end, "]},");
  }
  if (text.back() == ',') text.pop_back();
  text += '}';
  text.resize((8 + text.size() + kDataAlignment - 1) / kDataAlignment * kDataAlignment - 8, ' ');
  const uint64_t length = text.size();
  std::string header(8, '\0');
  std::memcpy(header.data(), &length, 8);
  return header + text;
}

}  // namespace espalier::store
