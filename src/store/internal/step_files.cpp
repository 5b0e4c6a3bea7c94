#include "store/internal/step_files.h"

#include <algorithm>
#include <map>

namespace espalier::store {

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

std::vector<FilePart> parts_of(const std::vector<TensorFile>& files, const StepContent& content) {
  std::vector<std::vector<const OwnBlock*>> by_tensor(content.tensors.size());
  for (const OwnBlock& block : content.blocks) by_tensor.at(block.tensor).push_back(&block);
  std::vector<FilePart> parts;
  for (const TensorFile& file : files) {
    parts.push_back({.file = &file, .number = parts.size(), .blocks = {}});
    for (size_t i = 0; i < file.tensors.size(); ++i)
      for (const OwnBlock* block : by_tensor[file.tensors[i]])
        parts.back().blocks.push_back({block, file.begins[i] + block->offset});
    std::sort(parts.back().blocks.begin(), parts.back().blocks.end(),
              [](const PlacedBlock& a, const PlacedBlock& b) { return a.begin < b.begin; });
  }
  return parts;
}

}  // namespace espalier::store
