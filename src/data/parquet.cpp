#include "data/parquet.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/plugin.h"

namespace espalier::data {
namespace {

using Json = nlohmann::ordered_json;

const ParquetTable& load_parquet_plugin() {
  return *static_cast<const ParquetTable*>(load_plugin(
      {parquet_plugin_path(), "espalier_parquet_table", kParquetInterface,
       "it reads and writes Parquet, and belongs next to the program. 'scripts/setup --parquet' builds it, with "
       "Arrow's libraries.",
       "It needs Arrow's libraries: 'scripts/setup --parquet' downloads them."}));
}

class ParquetInput : public InputStream {
 public:
  explicit ParquetInput(const std::string& path) : table_(load_parquet_plugin()), name_(path) {
    check_is_whole();
    ParquetProblem problem;
    reader_ = table_.open(path.c_str(), problem);
    if (reader_ == nullptr) fail(problem);
  }
  ~ParquetInput() override { table_.close(reader_); }

  size_t read(char* bytes, size_t capacity) override {
    if (lines_.empty()) {
      const char* lines = nullptr;
      size_t size = 0;
      ParquetProblem problem;
      if (!table_.read(reader_, lines, size, problem)) fail(problem);
      lines_ = {lines, size};
    }
    const size_t got = std::min(capacity, lines_.size());
    std::memcpy(bytes, lines_.data(), got);
    lines_.remove_prefix(got);
    return got;
  }
  int64_t consumed_bytes() const override { return table_.consumed_bytes(reader_); }

 private:
  [[noreturn]] void fail(const ParquetProblem& problem) const {
    throw UserError(concat("Parquet file '", name_, "': ", problem.text), ExitCode::kBadData);
  }

  // What every Parquet file begins and ends with, and in between the size of what describes it: a part of a copy has
  // not all of it.
  void check_is_whole() const {
    constexpr int64_t kLeastBytes = 12;  // magic, size, magic
    const InputFile file(name_);
    char end[8] = {};
    if (file.size_bytes() >= kLeastBytes) file.read_at(end, sizeof end, file.size_bytes() - 8);
    uint32_t footer = 0;
    std::memcpy(&footer, end, sizeof footer);
    const std::string_view magic(end + 4, 4);
    if ((magic != "PAR1" && magic != "PARE") || footer > file.size_bytes() - kLeastBytes)
      throw UserError(concat("Parquet file '", name_, "': cut off or damaged, as its end does not describe the ",
                             file.size_bytes(), " bytes. Copy it again."),
                      ExitCode::kBadData);
  }

  const ParquetTable& table_;
  std::string name_;
  ParquetReader* reader_ = nullptr;
  std::string_view lines_;  // read, not yet returned
};

// Types as ParquetTable::create has them, besides these: null says that nothing is known yet, kText that the values
// agree on none, kSmallInteger is an int64 that a double holds too.
constexpr const char* kText = "json";
constexpr const char* kSmallInteger = "int53";
constexpr int64_t kMostExact = int64_t{1} << 53;

Json type_of(const Json& value);

// What holds values of both types.
Json common_type(const Json& a, const Json& b) {
  if (a.is_null() || a == b) return b;
  if (b.is_null()) return a;
  if (a.is_array() && b.is_array()) {
    const Json element = common_type(a.at(0), b.at(0));
    return element == kText ? Json(kText) : Json::array({element});
  }
  if (a.is_object() && b.is_object()) {
    Json both = a;
    for (const auto& [key, type] : b.items()) {
      both[key] = common_type(both.contains(key) ? both.at(key) : Json(), type);
      if (both.at(key) == kText) return kText;
    }
    return both;
  }
  const auto are = [&](const char* one, const char* other) {
    return (a == one && b == other) || (a == other && b == one);
  };
  if (are(kSmallInteger, "int64")) return "int64";
  return are(kSmallInteger, "double") ? "double" : kText;
}

Json type_of_list(const Json& list) {
  Json element;
  for (const Json& value : list) {
    element = common_type(element, type_of(value));
    if (element == kText) return kText;
  }
  return Json::array({element});
}

Json type_of_structure(const Json& structure) {
  Json types = Json::object();
  for (const auto& [key, value] : structure.items()) {
    types[key] = type_of(value);
    if (types.at(key) == kText) return kText;
  }
  return types.empty() ? Json(kText) : types;  // Parquet has no structure without members
}

Json type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null: return nullptr;
    case Json::value_t::boolean: return "bool";
    case Json::value_t::number_integer: return value.get<int64_t>() >= -kMostExact ? kSmallInteger : "int64";
    case Json::value_t::number_unsigned:
      if (value.get<uint64_t>() > INT64_MAX) return kText;
      return value.get<int64_t>() <= kMostExact ? kSmallInteger : "int64";
    case Json::value_t::number_float: return "double";
    case Json::value_t::string: return "string";
    case Json::value_t::array: return type_of_list(value);
    case Json::value_t::object: return type_of_structure(value);
    default: return kText;  // what is no JSON for others, such as NaN
  }
}

// Where nothing became known, text.
Json without_gaps(const Json& type) {
  if (type.is_null() || type == kText) return "string";
  if (type == kSmallInteger) return "int64";
  Json whole = type;
  for (Json& inner : whole)
    if (type.is_structured()) inner = without_gaps(inner);
  return whole;
}

}  // namespace

std::filesystem::path parquet_plugin_path() { return beside_program("libespalier_parquet.so"); }
bool has_parquet() { return std::filesystem::exists(parquet_plugin_path()); }

std::unique_ptr<InputStream> open_parquet(const std::string& path) { return std::make_unique<ParquetInput>(path); }

void ParquetColumns::add(std::string_view key, std::string_view json) {
  const std::string name(key);
  const Json known = types_.contains(name) ? types_.at(name) : Json();
  if (known == kText) return;
  // The usual case, without parsing: a text without what may be half a surrogate pair, which is no JSON for others.
  if (known == "string" && json.front() == '"' && json.find("\\u") == std::string_view::npos) return;
  const Json value = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  types_[name] = common_type(known, type_of(value));
}

bool ParquetColumns::is_json_text(std::string_view key) const {
  const auto found = types_.find(std::string(key));
  return found != types_.end() && *found == kText;
}

bool ParquetColumns::has_json_text() const {
  return std::find(types_.begin(), types_.end(), Json(kText)) != types_.end();
}

std::string ParquetColumns::description() const {
  Json columns = Json::object();
  for (const auto& [key, type] : types_.items()) columns[key] = without_gaps(type);
  return columns.dump(-1, ' ', false, Json::error_handler_t::replace);
}

ParquetFileWriter::ParquetFileWriter(const std::string& path, std::string name, const ParquetColumns& columns,
                                     const std::string& compression)
    : table_(load_parquet_plugin()), name_(std::move(name)) {
  ParquetProblem problem;
  writer_ = table_.create(path.c_str(), columns.description().c_str(), compression.c_str(), problem);
  if (writer_ == nullptr) throw UserError(concat("cannot write '", name_, "': ", problem.text), ExitCode::kInputOutput);
}
ParquetFileWriter::~ParquetFileWriter() { table_.discard(writer_); }

void ParquetFileWriter::write_row_group(std::string_view lines) {
  ParquetProblem problem;
  if (!table_.write(writer_, lines.data(), lines.size(), problem))
    throw UserError(concat("cannot write '", name_, "': ", problem.text), ExitCode::kInputOutput);
}

void ParquetFileWriter::finish() {
  ParquetProblem problem;
  if (!table_.finish(writer_, problem))
    throw UserError(concat("cannot write '", name_, "': ", problem.text), ExitCode::kInputOutput);
}

}  // namespace espalier::data
