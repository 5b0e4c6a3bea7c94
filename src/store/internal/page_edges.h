// One writer for each page of a file that several processes write.
//
// Ranges of different writers end within a page. Where the writers are on several machines, each has the page in a
// cache of its own, and the network file system (NFS) may let the whole page of one replace what another wrote. So a
// process writes whole pages only, and gives the ends of its ranges to rank 0, which writes the pages they belong to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "store/internal/direct_file.h"
#include "store/internal/step_files.h"

namespace espalier::store {

struct FileEdges {
  size_t file = 0;  // number in the list of files
  std::vector<PageEdge> edges;
};

std::string encode(const std::vector<FileEdges>& edges);
// Of rank `rank`; a UserError where the text is cut off.
std::vector<FileEdges> decode_edges(const std::string& text, int64_t rank);

// Writes the edges of all processes, which together make whole pages but for the ends of files.
void write_edges(const std::filesystem::path& partial, const std::vector<TensorFile>& files,
                 std::vector<FileEdges> edges);

}  // namespace espalier::store
