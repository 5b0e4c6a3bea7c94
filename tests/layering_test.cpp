// The shape of the source tree: a library includes only lower levels, of those what its line in the table names; nobody
// includes another library's internal/; no file is too long; no drawers for leftovers.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

namespace {
namespace fs = std::filesystem;
using Names = std::set<std::string>;

// Direct neighbours, as docs/design.md lists them. What a neighbour may include, its users may include as well.
const std::map<std::string, Names> kMayInclude = {
    {"base", {}},
    {"launch", {"base"}},
    {"text", {"base"}},
    {"spec", {"base"}},
    {"store", {"base"}},
    {"report", {"base"}},
    {"web", {"base"}},
    {"watch", {"launch", "store", "report"}},
    {"data", {"base", "text"}},
    {"curate", {"data"}},
    {"eval", {"data"}},
    {"retrieval", {"data", "store"}},
    {"plan", {"spec"}},
    {"config", {"spec", "data", "text", "store", "plan", "report"}},
    {"families", {"config", "plan", "retrieval"}},
    {"convert", {"spec", "store", "families", "text"}},
    {"tensor", {"spec"}},
    {"kernels", {"tensor"}},
    {"dist", {"tensor", "plan", "launch"}},
    {"cuda", {"kernels", "dist", "config"}},
    {"nn", {"kernels", "dist"}},
    {"optim", {"kernels", "dist"}},
    {"ckpt", {"tensor", "dist", "plan", "store"}},
    {"pipeline", {"tensor", "dist", "plan"}},
    {"models", {"nn", "pipeline", "families"}},
    {"train", {"models", "optim", "ckpt", "data", "report"}},
    {"infer", {"models", "ckpt", "text", "convert"}},
    {"serve", {"web", "text", "infer"}},
};

constexpr int kMaxLines = 800;
const Names kGeneratedFiles = {"src/text/unicode_table.cpp", "src/curate/steps/mojibake_tables.cpp"};

Names reachable(const std::string& library) {
  Names all = {library};
  for (const std::string& neighbour : kMayInclude.at(library)) all.merge(reachable(neighbour));
  return all;
}

template <class Visit>
void for_each_source(const fs::path& root, Visit visit) {
  if (!fs::exists(root)) return;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
    const std::string extension = entry.path().extension();
    if (entry.is_regular_file() && Names{".h", ".cpp", ".cu", ".cuh"}.contains(extension)) visit(entry.path());
  }
}

std::string library_of(const std::string& include_path) { return include_path.substr(0, include_path.find('/')); }

TEST(Layering, LibrariesIncludeOnlyWhatTheTableAllows) {
  const std::regex include(R"re(^\s*#\s*include\s+"([^"]+)")re");
  for_each_source("src", [&](const fs::path& path) {
    const std::string library = library_of(fs::relative(path, "src").string());
    ASSERT_TRUE(kMayInclude.contains(library)) << path << " is in no library of the table";
    const Names allowed = reachable(library);
    std::ifstream file(path);
    std::smatch match;
    int number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      if (!std::regex_search(line, match, include)) continue;
      const std::string target = match[1];
      if (target.starts_with("tests/")) continue;  // support of tests
      EXPECT_TRUE(allowed.contains(library_of(target)))
          << path.string() << ":" << number << ": " << library << " may not include " << target;
      if (target.find("/internal/") != std::string::npos) {
        EXPECT_EQ(library_of(target), library)
            << path.string() << ":" << number << ": private to its library: " << target;
      }
    }
  });
}

TEST(Layering, LibrariesWithoutTorchNameNoTorchHeader) {
  const std::regex torch_header(R"re(^\s*#\s*include\s+<(ATen|c10|torch)/)re");
  for (const std::string library : {"base", "launch", "text", "spec", "store", "report", "watch", "data", "curate",
                                    "eval", "retrieval", "plan", "config", "families", "convert", "serve"})
    for_each_source("src/" + library, [&](const fs::path& path) {
      std::ifstream file(path);
      for (std::string line; std::getline(file, line);)
        EXPECT_FALSE(std::regex_search(line, torch_header)) << path << ": " << line;
    });
}

TEST(Layering, FilesStayShort) {
  for (const char* root : {"src", "apps", "tests", "bench"})
    for_each_source(root, [&](const fs::path& path) {
      if (kGeneratedFiles.contains(path.string())) return;
      std::ifstream file(path);
      int lines = 0;
      for (std::string line; std::getline(file, line);) ++lines;
      EXPECT_LE(lines, kMaxLines) << path;
    });
}

TEST(Layering, NoFolderForLeftovers) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator("src"))
    EXPECT_FALSE((Names{"utils", "util", "common", "misc", "helpers"}.contains(entry.path().filename())))
        << entry.path();
}

}  // namespace
