#include "curate/input_files.h"

#include <glob.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/format.h"
#include "data/line_reader.h"

namespace espalier::curate {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& name) { return name.native().starts_with('_') || name.native().starts_with('.'); }

void append_folder(const std::string& folder, bool holds_records, std::vector<std::string>& files, Problems& problems) {
  std::error_code walk;
  const size_t before = files.size();
  for (auto entry = fs::recursive_directory_iterator(folder, walk); entry != fs::recursive_directory_iterator();
       entry.increment(walk)) {
    if (holds_records && is_hidden(entry->path().filename())) {
      entry.disable_recursion_pending();
      continue;
    }
    std::error_code error;
    if (entry->is_regular_file(error)) files.push_back(entry->path().string());
  }
  if (walk) problems.add("folder ", folder, " cannot be read to its end: ", walk.message());
  std::sort(files.begin() + static_cast<int64_t>(before), files.end());
}

std::string decode_percents(std::string_view text) {
  std::string decoded;
  for (size_t at = 0; at < text.size(); ++at) {
    unsigned byte = 0;
    const char* const digits = text.data() + at + 1;
    if (text[at] == '%' && at + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      decoded += static_cast<char>(byte);
      at += 2;
    } else {
      decoded += text[at];
    }
  }
  return decoded;
}

constexpr std::string_view kNullPartition = "__HIVE_DEFAULT_PARTITION__";

// What Hive escapes in the names of partitions.
std::string encode_percents(std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || byte == 0x7f || std::string_view("\"#%'*/:=?\\{[]^").find(c) != std::string_view::npos)
      encoded.append({'%', kHex[byte >> 4], kHex[byte & 15]});
    else
      encoded += c;
  }
  return encoded;
}

}  // namespace

std::vector<std::string> expand_files(const std::vector<std::string>& patterns, InputFormat format,
                                      Problems& problems) {
  const bool holds_records = format != InputFormat::kText && format != InputFormat::kHtml;
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    std::error_code error;
    const size_t before = files.size();
    if (fs::is_directory(pattern, error)) {
      append_folder(pattern, holds_records, files, problems);
      if (files.size() == before) problems.add("folder ", pattern, " holds no file");
    } else if (pattern.find_first_of("*?[") == std::string::npos || fs::exists(pattern, error)) {
      files.push_back(pattern);
    } else {
      glob_t found{};
      if (::glob(pattern.c_str(), 0, nullptr, &found) != 0) problems.add("no file matches ", pattern);
      for (size_t index = 0; index < found.gl_pathc; ++index) files.emplace_back(found.gl_pathv[index]);
      ::globfree(&found);
    }
  }
  return files;
}

std::string describe_repeated(const std::vector<std::string>& files) {
  std::set<fs::path> seen;
  std::vector<std::string> repeated;
  for (const std::string& file : files) {
    std::error_code error;
    fs::path path = fs::canonical(file, error);
    if (!error && !seen.insert(std::move(path)).second) repeated.push_back(file);
  }
  if (repeated.empty()) return "";
  return concat(repeated.front(), repeated.size() == 1 ? "" : concat(" and ", repeated.size() - 1, " more"),
                repeated.size() == 1 ? " is" : " are", " named more than once, and each record is read as often");
}

std::vector<std::string> read_manifest(const std::string& manifest, Problems& problems) {
  std::vector<std::string> files;
  try {
    data::LineReader reader({manifest});
    int64_t number = 0;
    for (std::string_view line; reader.next(line);) {
      ++number;
      std::string path = strip(std::string(line));
      if (path.empty() || path[0] == '#') continue;
      if (path[0] == '{') {
        const nlohmann::json entry = nlohmann::json::parse(path, nullptr, /*allow_exceptions=*/false);
        const std::string key = entry.is_object() && entry.contains("path") ? "path" : "file";
        if (!entry.is_object() || !entry.contains(key) || !entry.at(key).is_string()) {
          problems.add(manifest, ":", number,
                       ": expected a path, or a JSON object with one under \"path\" or \"file\"");
          continue;
        }
        path = entry.at(key);
      }
      if (path.starts_with("file:")) path.erase(0, path.starts_with("file://") ? 7 : 5);
      if (const size_t scheme = path.find("://"); scheme != std::string::npos) {
        problems.add(manifest, ":", number, ": ", path, " is on no disk; mount it, or copy what ",
                     path.substr(0, scheme), ": names");
        continue;
      }
      files.push_back(path[0] == '/' ? path : (fs::path(manifest).parent_path() / path).string());
    }
    if (files.empty() && problems.empty()) problems.add("manifest ", manifest, " names no file");
  } catch (const UserError& error) {
    problems.add("manifest: ", error.what());
  }
  return files;
}

std::vector<Metadata::Member> partition_keys(const std::string& path) {
  std::vector<Metadata::Member> keys;
  if (path.find('=') == std::string::npos) return keys;
  for (const fs::path& part : fs::path(path).parent_path()) {
    const std::string& name = part.native();
    const size_t equals = name.find('=');
    if (equals == std::string::npos || equals == 0) continue;
    const std::string value = name.substr(equals + 1);
    keys.push_back(
        {decode_percents(name.substr(0, equals)),
         value == kNullPartition
             ? "null"
             : nlohmann::json(decode_percents(value)).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)});
  }
  return keys;
}

std::string partition_folder(const std::string& key, const std::optional<std::string>& value) {
  return concat(encode_percents(key), "=", value && !value->empty() ? encode_percents(*value) : kNullPartition);
}

}  // namespace espalier::curate
