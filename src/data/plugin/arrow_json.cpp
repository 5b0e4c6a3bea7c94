#include "data/plugin/arrow_json.h"

#include <arrow/api.h>
#include <arrow/util/float16.h>

#include <charconv>
#include <cmath>

namespace espalier::data {
namespace {

template <class Number>
void append_number(Number number, std::string& out) {
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(number)) {
      out += "null";
      return;
    }
  }
  char digits[40];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
  out.append(digits, end);
  // What was no whole number by its type does not become one.
  if constexpr (std::is_floating_point_v<Number>)
    if (std::string_view(digits, static_cast<size_t>(end - digits)).find_first_of(".e") == std::string_view::npos)
      out += ".0";
}

template <class List>
void append_list(const List& list, int64_t row, std::string& out) {
  out += '[';
  const int64_t begin = list.value_offset(row), end = begin + list.value_length(row);
  for (int64_t at = begin; at < end; ++at) {
    if (at > begin) out += ", ";
    append_json(*list.values(), at, out);
  }
  out += ']';
}

void append_map(const arrow::MapArray& map, int64_t row, std::string& out) {
  const bool has_text_keys = arrow::is_base_binary_like(map.keys()->type_id());
  const int64_t begin = map.value_offset(row), end = begin + map.value_length(row);
  out += has_text_keys ? '{' : '[';
  for (int64_t at = begin; at < end; ++at) {
    if (at > begin) out += ", ";
    if (!has_text_keys) out += '[';
    append_json(*map.keys(), at, out);
    out += has_text_keys ? ": " : ", ";
    append_json(*map.items(), at, out);
    if (!has_text_keys) out += ']';
  }
  out += has_text_keys ? '}' : ']';
}

void append_structure(const arrow::StructArray& structure, int64_t row, std::string& out) {
  out += '{';
  for (int field = 0; field < structure.num_fields(); ++field) {
    if (field > 0) out += ", ";
    append_json_string(structure.struct_type()->field(field)->name(), out);
    out += ": ";
    append_json(*structure.field(field), row, out);
  }
  out += '}';
}

// Of types that Arrow itself puts into words.
void append_words(const arrow::Array& array, int64_t row, std::string& out) {
  append_json_string(array.GetScalar(row).ValueOrDie()->ToString(), out);
}

bool has_json(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::NA:
    case arrow::Type::BOOL:
    case arrow::Type::INT8:
    case arrow::Type::INT16:
    case arrow::Type::INT32:
    case arrow::Type::INT64:
    case arrow::Type::UINT8:
    case arrow::Type::UINT16:
    case arrow::Type::UINT32:
    case arrow::Type::UINT64:
    case arrow::Type::HALF_FLOAT:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::FIXED_SIZE_BINARY:
    case arrow::Type::DATE32:
    case arrow::Type::DATE64:
    case arrow::Type::TIME32:
    case arrow::Type::TIME64:
    case arrow::Type::TIMESTAMP:
    case arrow::Type::DURATION:
    case arrow::Type::DECIMAL32:
    case arrow::Type::DECIMAL64:
    case arrow::Type::DECIMAL128:
    case arrow::Type::DECIMAL256: return true;
    case arrow::Type::DICTIONARY: return has_json(*static_cast<const arrow::DictionaryType&>(type).value_type());
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::FIXED_SIZE_LIST:
    case arrow::Type::MAP:
    case arrow::Type::STRUCT: return true;  // what is inside them is asked for by name
    default: return false;
  }
}

std::string field_without_json(const arrow::Field& field, const std::string& prefix) {
  const std::string name = prefix + field.name();
  if (!has_json(*field.type())) return name + ": " + field.type()->ToString();
  for (const std::shared_ptr<arrow::Field>& inner : field.type()->fields()) {
    const std::string found = field_without_json(*inner, name + ".");
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace

std::string column_without_json(const arrow::Schema& schema) {
  for (const std::shared_ptr<arrow::Field>& field : schema.fields()) {
    const std::string found = field_without_json(*field, "");
    if (!found.empty()) return found;
  }
  return "";
}

void append_json_string(std::string_view text, std::string& out) {
  static constexpr char kDigits[] = "0123456789abcdef";
  out += '"';
  size_t plain = 0;  // from here on nothing was appended yet
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    out.append(text, plain, at - plain);
    plain = at + 1;
    switch (byte) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        out += "\\u00";
        out += kDigits[byte >> 4];
        out += kDigits[byte & 15];
    }
  }
  out.append(text, plain);
  out += '"';
}

void append_json(const arrow::Array& array, int64_t row, std::string& out) {
  if (array.IsNull(row)) {
    out += "null";
    return;
  }
  const auto number = [&]<class Of>(const Of& of) { append_number(of.Value(row), out); };
  switch (array.type_id()) {
    case arrow::Type::NA: out += "null"; return;
    case arrow::Type::BOOL: out += static_cast<const arrow::BooleanArray&>(array).Value(row) ? "true" : "false"; return;
    case arrow::Type::INT8: return number(static_cast<const arrow::Int8Array&>(array));
    case arrow::Type::INT16: return number(static_cast<const arrow::Int16Array&>(array));
    case arrow::Type::INT32: return number(static_cast<const arrow::Int32Array&>(array));
    case arrow::Type::INT64: return number(static_cast<const arrow::Int64Array&>(array));
    case arrow::Type::UINT8: return number(static_cast<const arrow::UInt8Array&>(array));
    case arrow::Type::UINT16: return number(static_cast<const arrow::UInt16Array&>(array));
    case arrow::Type::UINT32: return number(static_cast<const arrow::UInt32Array&>(array));
    case arrow::Type::UINT64: return number(static_cast<const arrow::UInt64Array&>(array));
    case arrow::Type::HALF_FLOAT:
      return append_number(
          arrow::util::Float16::FromBits(static_cast<const arrow::HalfFloatArray&>(array).Value(row)).ToFloat(), out);
    case arrow::Type::FLOAT: return number(static_cast<const arrow::FloatArray&>(array));
    case arrow::Type::DOUBLE: return number(static_cast<const arrow::DoubleArray&>(array));
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
      return append_json_string(static_cast<const arrow::BinaryArray&>(array).GetView(row), out);
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
      return append_json_string(static_cast<const arrow::LargeBinaryArray&>(array).GetView(row), out);
    case arrow::Type::FIXED_SIZE_BINARY:
      return append_json_string(static_cast<const arrow::FixedSizeBinaryArray&>(array).GetView(row), out);
    case arrow::Type::DICTIONARY: {
      const auto& words = static_cast<const arrow::DictionaryArray&>(array);
      return append_json(*words.dictionary(), words.GetValueIndex(row), out);
    }
    case arrow::Type::LIST: return append_list(static_cast<const arrow::ListArray&>(array), row, out);
    case arrow::Type::LARGE_LIST: return append_list(static_cast<const arrow::LargeListArray&>(array), row, out);
    case arrow::Type::FIXED_SIZE_LIST:
      return append_list(static_cast<const arrow::FixedSizeListArray&>(array), row, out);
    case arrow::Type::MAP: return append_map(static_cast<const arrow::MapArray&>(array), row, out);
    case arrow::Type::STRUCT: return append_structure(static_cast<const arrow::StructArray&>(array), row, out);
    default: return append_words(array, row, out);
  }
}

}  // namespace espalier::data
