// Which files a source has, and what their paths say: folders as Spark, Ray and Hive lay them out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "curate/document.h"
#include "curate/input.h"

namespace espalier::curate {

// Files, patterns as a shell has them (* ? [), and folders, which stand for all files in them in the order of their
// names. In folders, files whose names, or whose folders' names, begin with _ or . are not data:
// _SUCCESS, _temporary, .part-0.crc.
std::vector<std::string> expand_files(const std::vector<std::string>& patterns, InputFormat format, Problems& problems);

// "a.jsonl is read twice": of files that are named more than once, maybe by different paths. Empty if none is.
std::string describe_repeated(const std::vector<std::string>& files);

// The files that a list names: a path a line, or a JSON object a line with one under "path" or "file". Paths that are
// not absolute are relative to the list's folder; "file:" is stripped, and anything not on a disk (s3:) is a problem.
std::vector<std::string> read_manifest(const std::string& manifest, Problems& problems);

// The keys that folders of a path name: .../language=fr/day=2026-01-01/part-0.parquet. Values are texts, with %20 and
// the like decoded; __HIVE_DEFAULT_PARTITION__ is null.
std::vector<Metadata::Member> partition_keys(const std::string& path);
// The folder that names them: "language=fr". No value: null.
std::string partition_folder(const std::string& key, const std::optional<std::string>& value);

}  // namespace espalier::curate
