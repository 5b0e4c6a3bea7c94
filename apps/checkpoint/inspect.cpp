#include "apps/checkpoint/inspect.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"

namespace espalier {
namespace {

using TableRows = std::vector<std::vector<std::string>>;

std::string text_of(int64_t value) { return format_count(value); }
std::string text_of(double value) { return format_shortest(value); }
std::string text_of(const std::string& value) { return value.empty() ? "-" : value; }
template <class Value>
std::string text_of(const std::map<std::string, Value>& values) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : values) parts.push_back(name + " " + text_of(value));
  return parts.empty() ? "-" : join(parts, ", ");
}

// Columns as wide as they need to be; those in `right` are aligned to the right.
std::string table(const TableRows& rows, const std::vector<bool>& right) {
  std::vector<size_t> widths(right.size(), 0);
  for (const auto& row : rows)
    for (size_t column = 0; column < row.size(); ++column)
      widths[column] = std::max(widths[column], row[column].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t column = 0; column < row.size(); ++column) {
      const std::string padding(widths[column] - row[column].size(), ' ');
      line += "  " + (right[column] ? padding + row[column] : row[column] + padding);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

template <class Struct>
TableRows fields_of(const Struct& value) {
  TableRows rows;
  Struct::visit_fields(value, [&](const char* name, const auto& field) { rows.push_back({name, text_of(field)}); });
  return rows;
}

std::string steps_of(const std::vector<store::StepEntry>& entries) {
  std::vector<std::string> names;
  for (const store::StepEntry& entry : entries) names.push_back(format_count(entry.step));
  return join(names, "; ");
}

TableRows tensor_rows(const store::Manifest& manifest) {
  TableRows rows = {{"tensor", "type and shape", "bytes", "blocks", "file"}};
  for (const store::StoredTensor& tensor : manifest.tensors)
    rows.push_back({tensor.name, store::describe(tensor), format_count(tensor.num_bytes()),
                    std::to_string(tensor.blocks.size()), tensor.file});
  return rows;
}

}  // namespace

std::string describe_checkpoint(const std::filesystem::path& folder, const store::Manifest& manifest,
                                const store::RunListing& listing) {
  std::string text = folder.string() + "\n";
  if (!listing.complete.empty()) text += "  complete steps: " + steps_of(listing.complete) + "\n";
  if (!listing.partial.empty()) text += "  unfinished steps: " + steps_of(listing.partial) + "\n";
  if (!listing.superseded.empty()) text += "  steps set aside: " + steps_of(listing.superseded) + "\n";
  text += "\nmodel\n" + table(fields_of(manifest.model), {false, false});
  text += "\nstate\n" + table(fields_of(manifest.state), {false, false});
  text += "\n" + table(tensor_rows(manifest), {false, false, true, true, false});
  int64_t weight_bytes = 0;
  for (const store::StoredTensor& tensor : manifest.tensors)
    if (store::is_weight(tensor)) weight_bytes += tensor.num_bytes();
  return text + concat("\n", manifest.tensors.size(), " tensors, ",
                       format_bytes(static_cast<double>(manifest.tensor_bytes())), " in ", manifest.files.size(),
                       " files; weights ", format_bytes(static_cast<double>(weight_bytes)), ", optimizer ",
                       format_bytes(static_cast<double>(manifest.tensor_bytes() - weight_bytes)), "; format version ",
                       manifest.version, "\n");
}

}  // namespace espalier
