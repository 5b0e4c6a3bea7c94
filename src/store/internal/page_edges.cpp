#include "store/internal/page_edges.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace espalier::store {
namespace {

struct EdgeHeader {
  uint64_t file;
  int64_t offset;
  uint64_t bytes;
};

}  // namespace

std::string encode(const std::vector<FileEdges>& edges) {
  std::string text;
  for (const FileEdges& part : edges)
    for (const PageEdge& edge : part.edges) {
      const EdgeHeader header{part.file, edge.offset, edge.bytes.size()};
      text.append(reinterpret_cast<const char*>(&header), sizeof header);
      text += edge.bytes;
    }
  return text;
}

std::vector<FileEdges> decode_edges(const std::string& text, int64_t rank) {
  std::vector<FileEdges> edges;
  for (size_t at = 0; at < text.size();) {
    EdgeHeader header;
    const size_t left = text.size() - at;
    if (left >= sizeof header) std::memcpy(&header, text.data() + at, sizeof header);
    if (left < sizeof header || left - sizeof header < header.bytes)
      throw UserError(concat("the ends of pages from rank ", rank, " are cut off after byte ", at, " of ", text.size()),
                      ExitCode::kInputOutput);
    if (edges.empty() || edges.back().file != header.file) edges.push_back({header.file, {}});
    edges.back().edges.push_back({header.offset, text.substr(at + sizeof header, header.bytes)});
    at += sizeof header + header.bytes;
  }
  return edges;
}

void write_edges(const std::filesystem::path& partial, const std::vector<TensorFile>& files,
                 std::vector<FileEdges> edges) {
  std::vector<std::vector<PageEdge>> by_file(files.size());
  for (FileEdges& part : edges) {
    std::vector<PageEdge>& all = by_file.at(part.file);
    std::move(part.edges.begin(), part.edges.end(), std::back_inserter(all));
  }
  for (size_t number = 0; number < files.size(); ++number) {
    std::vector<PageEdge>& own = by_file[number];
    if (own.empty()) continue;
    std::sort(own.begin(), own.end(), [](const PageEdge& a, const PageEdge& b) { return a.offset < b.offset; });
    DirectFile file(partial / files[number].path, files[number].bytes);
    for (const PageEdge& edge : own) {
      if (file.position() != edge.offset) file.seek(edge.offset);
      file.append(edge.bytes.data(), static_cast<int64_t>(edge.bytes.size()));
    }
    file.finish();
  }
}

}  // namespace espalier::store
