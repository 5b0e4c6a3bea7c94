// Finds the two files of a data set, also where copying and renaming has left them under other names.
//
// A data set is named by its prefix: PREFIX.idx and PREFIX.bin. Also read, with a warning that says how to fix the
// name: an index called PREFIX.bin.idx, as tools write it that are given the name of the .bin; a set whose name was
// made with PREFIX.bin as the prefix; and, where the folder holds exactly one such, a set whose name has '-' for '_'
// or '_' for '-'.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace espalier::data {

struct TokenFiles {
  std::string index, tokens;  // paths of the .idx and the .bin
  std::string remark;         // how the names differ from what was asked for; empty where they do not
};

// Nothing where there is no such data set. Opens no file.
std::optional<TokenFiles> find_token_files(const std::string& prefix);

// Why find_token_files() found nothing: "there is no 'data/wkii.idx'. Did you mean 'data/wiki'?". Where something else
// is under the name (text, a folder, a pipe, a pointer of Git LFS), says what it is and how it becomes token files.
std::string describe_missing(const std::string& prefix);

// "a pipe (FIFO)", "a folder", "a link to 'x', which does not exist"; empty where nothing is at the path, or a
// regular file that may be looked at.
std::string describe_no_file(const std::string& path);

// Throws a UserError (kBadData) where one of the two is a pointer of Git LFS, that is a small text in place of a
// file which was not fetched.
void refuse_git_lfs_pointers(const TokenFiles& files);
// What writing a data set under this prefix replaces, where it exists: PREFIX.bin and PREFIX.idx.
std::vector<std::filesystem::path> files_written_for(const std::string& prefix);

// What is wrong with reading the set as `data_impl` (infer, mmap, lazy or cached, of --data-impl); empty if nothing.
// Reads eight bytes of the index.
std::string format_problem(const TokenFiles& files, const std::string& data_impl);

}  // namespace espalier::data
