#include "data/blend_recipe.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/format.h"
#include "base/json.h"
#include "data/token_store.h"

namespace espalier::data {
namespace {

using Json = nlohmann::ordered_json;
using std::filesystem::path;

[[noreturn]] void fail(const std::string& message) { throw UserError(message, ExitCode::kBadData); }

std::string without_bin(const std::string& prefix) {
  return prefix.ends_with(".bin") ? prefix.substr(0, prefix.size() - 4) : prefix;
}

void check_weight(double weight, const std::string& where, const std::string& found) {
  if (!std::isfinite(weight) || weight < 0)
    fail(
        concat(where, ": expected a weight of 0 or more, found ", found, ". Leave out a set that should not be read."));
}

double number_of(const Json& value, const std::string& where) {
  if (!value.is_number()) fail(concat(where, ": expected a number, found ", value.dump(-1, ' ', true)));
  const double number = value.get<double>();
  check_weight(number, where, value.dump());
  return number;
}

BlendSource ratio_of_object(const Json& entry, const std::string& where) {
  const auto member = [&](const char* name) {
    const auto found = entry.find(name);
    if (found == entry.end()) fail(concat(where, ": expected the keys dataset_path and ratio, found no '", name, "'"));
    return *found;
  };
  if (!entry.is_object()) fail(concat(where, ": expected an object, found ", entry.type_name()));
  const Json prefix = member("dataset_path");
  if (!prefix.is_string()) fail(concat(where, ": dataset_path: expected a string, found ", prefix.type_name()));
  BlendSource source;
  source.prefix = without_bin(prefix.get<std::string>());
  source.weight = number_of(member("ratio"), where + ": ratio");
  return source;
}

// Of sets that are in folders of their own the folder, as BLOOM's by language; else the name of the file.
void name_corpora(std::vector<BlendSource>& sources) {
  std::set<std::string> folders;
  for (const BlendSource& source : sources) folders.insert(path(source.prefix).parent_path().filename().string());
  const bool by_folder = folders.size() == sources.size() && !folders.contains("") && sources.size() > 1;
  for (BlendSource& source : sources)
    source.corpus =
        by_folder ? path(source.prefix).parent_path().filename().string() : path(source.prefix).filename().string();
}

std::string relative_path(const BlendSource& source, const std::string& base_folder) {
  if (!source.measured) return source.prefix;  // nothing is known about what does not exist
  const path base = std::filesystem::absolute(base_folder.empty() ? "." : base_folder).lexically_normal();
  return std::filesystem::absolute(source.prefix).lexically_normal().lexically_relative(base).string();
}

std::string group_text(const std::string& name, const std::vector<const BlendSource*>& sources, const SplitFile& file) {
  std::vector<std::string> pieces;
  for (const BlendSource* source : sources) {
    const std::string prefix = relative_path(*source, file.base_folder);
    if (prefix.find_first_of(" \t\r\n,\"") != std::string::npos)
      fail(concat("'", prefix, "': a split file cannot hold a path with a space, a comma or a quote. Rename it."));
    pieces.push_back(concat(format_shortest(source->weight), " ", format_shortest(file.range.begin), ":",
                            format_shortest(file.range.end), " ", prefix));
  }
  if (name.find_first_of(":,\"") != std::string::npos)
    fail(concat("'", name, "': the name of a group cannot hold a colon, a comma or a quote"));
  return concat('"', name, ": ", join(pieces, ", "), '"');
}

}  // namespace

std::vector<BlendSource> parse_ratios(const std::string& content, const std::string& file_name) {
  const Json json = parse_json<Json>(content, file_name);
  std::vector<BlendSource> sources;
  if (json.is_object()) {
    for (const auto& [prefix, value] : json.items()) {
      const std::string where = concat(file_name, ": '", prefix, "'");
      const bool with_size = value.is_array() && !value.empty();
      sources.emplace_back();
      sources.back().prefix = without_bin(prefix);
      sources.back().weight = number_of(with_size ? value[0] : value, where);
    }
  } else if (json.is_array()) {
    for (size_t at = 0; at < json.size(); ++at)
      sources.push_back(ratio_of_object(json[at], concat(file_name, ": entry ", at + 1)));
  } else {
    fail(concat(file_name, ": expected a list of {\"dataset_path\", \"ratio\"}, found ", json.type_name()));
  }
  if (sources.empty()) fail(concat(file_name, ": expected at least one data set, found none"));
  name_corpora(sources);
  return sources;
}

std::vector<BlendSource> parse_file_list(const std::string& content, const std::string& file_name) {
  std::vector<BlendSource> sources;
  const std::vector<std::string> lines = split(content, '\n');
  for (size_t at = 0; at < lines.size(); ++at) {
    const std::vector<std::string> words = split_blanks(lines[at]);
    if (words.empty()) continue;
    const std::string where = concat(file_name, ": line ", at + 1);
    if (words.size() != 3) fail(concat(where, ": expected three words, WEIGHT PREFIX CORPUS, found ", words.size()));
    BlendSource source;
    try {
      source.weight = parse_number(words[0], where);
    } catch (const UserError& error) {
      fail(error.what());
    }
    check_weight(source.weight, where, words[0]);
    source.prefix = without_bin(words[1]);
    source.corpus = words[2];
    sources.push_back(source);
  }
  if (sources.empty()) fail(concat(file_name, ": expected at least one line WEIGHT PREFIX CORPUS, found none"));
  return sources;
}

std::vector<BlendSource> sources_of(const std::vector<std::string>& prefixes) {
  std::vector<BlendSource> sources;
  for (const std::string& prefix : prefixes) {
    sources.emplace_back();
    sources.back().prefix = prefix;
  }
  name_corpora(sources);
  return sources;
}

void relocate(std::vector<BlendSource>& sources, const std::string& folder) {
  for (BlendSource& source : sources) {
    const path old(source.prefix);
    for (const path& candidate : {folder / old.parent_path().filename() / old.filename(), folder / old.filename()}) {
      if (!find_token_files(candidate.string())) continue;
      source.prefix = candidate.string();
      break;
    }
  }
}

void measure(std::vector<BlendSource>& sources, const FractionRange& train_range) {
  for (BlendSource& source : sources) {
    if (!find_token_files(source.prefix)) continue;
    const TokenStore store(source.prefix);
    source.measured = true;
    source.num_documents = store.num_sequences();  // which is what ranges count
    source.num_tokens = store.num_tokens();
    source.num_train_tokens = 0;
    const DocumentRange range = documents_in_range(train_range, store.num_sequences());
    for (int64_t document = range.begin; document < range.end; ++document)
      source.num_train_tokens += store.size(document);
  }
}

void set_epochs(std::vector<BlendSource>& sources, const std::map<std::string, double>& epochs, Problems& problems) {
  std::set<std::string> corpora;
  for (BlendSource& source : sources) {
    corpora.insert(source.corpus);
    if (const auto given = epochs.find(source.corpus); given != epochs.end()) source.epochs = given->second;
  }
  const std::vector<std::string> names(corpora.begin(), corpora.end());
  for (const auto& [name, number] : epochs) {
    if (corpora.contains(name)) continue;
    const std::vector<std::string> near = nearest_names(name, names, /*max_distance=*/4);
    problems.add("--epochs ", name, "=", format_shortest(number), ": no corpus has that name; ",
                 near.empty() ? "they are " + join(names, ", ") : "did you mean " + join(near, " or ") + "?");
  }
}

void weigh_by_size(std::vector<BlendSource>& sources, double alpha) {
  const auto wanted = [](const BlendSource& source) {
    ESPALIER_CHECK(source.measured, source.prefix);
    return static_cast<double>(source.num_tokens) * source.epochs;
  };
  std::map<std::string, double> sizes;  // of the corpora
  double all = 0;
  for (const BlendSource& source : sources) sizes[source.corpus] += wanted(source), all += wanted(source);
  if (!(all > 0)) fail("the data sets hold no tokens to be read; weights cannot be derived from their sizes");
  double sum = 0;
  for (const auto& [corpus, size] : sizes)
    if (size > 0) sum += std::pow(size / all, alpha);
  for (BlendSource& source : sources) {
    const double size = sizes.at(source.corpus);
    source.weight = size > 0 ? std::pow(size / all, alpha) / sum * (wanted(source) / size) : 0;
  }
}

std::vector<std::string> drop_unweighted(std::vector<BlendSource>& sources) {
  std::vector<std::string> dropped;
  std::vector<BlendSource> kept;
  for (const BlendSource& source : sources) {
    if (source.weight > 0)
      kept.push_back(source);
    else
      dropped.push_back(source.prefix);
  }
  sources = std::move(kept);
  return dropped;
}

std::string split_file_content(const std::vector<BlendSource>& sources, const SplitFile& file) {
  std::vector<const BlendSource*> all;
  std::vector<std::string> order;
  std::map<std::string, std::vector<const BlendSource*>> corpora;
  for (const BlendSource& source : sources) {
    all.push_back(&source);
    if (corpora[source.corpus].empty()) order.push_back(source.corpus);
    corpora[source.corpus].push_back(&source);
  }
  std::string line = group_text(file.set, all, file);
  if (file.group_per_corpus)
    for (const std::string& corpus : order)
      line += " " + group_text(concat(file.set, "_", corpus), corpora[corpus], file);
  return line + "\n";
}

}  // namespace espalier::data
