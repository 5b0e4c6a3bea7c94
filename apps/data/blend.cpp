// espalier data blend: weights for several data sets, as the split files that training reads, and as a table.
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/data/commands.h"
#include "apps/print_json.h"
#include "base/file.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "base/pending_file.h"
#include "data/blend_recipe.h"
#include "data/data_stages.h"
#include "data/store_metadata.h"
#include "data/token_files.h"

namespace espalier {
namespace {

using Sources = std::vector<data::BlendSource>;

struct BlendRequest {
  std::vector<std::string> prefixes, epochs;
  std::string ratios, file_list, data_folder;
  std::optional<double> alpha;
  std::optional<int64_t> train_tokens;
  std::string train_range = "0:0.95", valid_range = "0.95:1", test_range;
  std::string output_folder, relative_to, stage;
  bool valid_per_corpus = false, json = false, overwrite = false;
};

void add_rows(OptionTable& table, BlendRequest& request) {
  table.positional("PREFIX", request.prefixes, "data sets, weighted by their tokens; or one of the two below", 0,
                   SIZE_MAX);
  table.add("--ratios", request.ratios, "JSON: a list of {\"dataset_path\", \"ratio\"}, as BLOOM's").value_name("FILE");
  table.add("--data-file-list", request.file_list, "lines WEIGHT PREFIX CORPUS").value_name("FILE");
  table.add("--data-folder", request.data_folder, "look here for data sets that --ratios or the list locate elsewhere")
      .value_name("DIR");
  table.group("weights from sizes");
  table.add("--alpha", request.alpha, "weight of a corpus: its tokens to this power; below 1 small ones gain")
      .minimum(0)
      .maximum(10)
      .default_text("1");
  table.add("--epochs", request.epochs, "count the tokens of a corpus this many times; other corpora count once")
      .value_name("CORPUS=N");
  table.group("output");
  table.add("--output-folder", request.output_folder, "writes train-splits.txt and valid-splits.txt here")
      .value_name("DIR");
  table.add("--overwrite", request.overwrite, "replace split files that exist in --output-folder");
  table.add("--train-range", request.train_range, "documents for training, as shares").value_name("A:B");
  table.add("--valid-range", request.valid_range, "documents for validation").value_name("A:B");
  table.add("--test-range", request.test_range, "documents for test-splits.txt; none unless given").value_name("A:B");
  table.add("--valid-per-corpus", request.valid_per_corpus,
            "a validation group for each corpus in addition to that of all");
  table.add("--relative-to", request.relative_to, "paths are relative to this folder; Megatron needs its own: .")
      .value_name("DIR")
      .default_text("--output-folder");
  table.add("--train-tokens", request.train_tokens, "length of the run, for the tokens and epochs of the table")
      .minimum(1)
      .default_text("all tokens once, or as --epochs says");
  table
      .add("--as-stage", request.stage,
           "print the blend as a word of --data-stages that begins at START, instead of the table")
      .value_name("START");
  table.add("--json", request.json, "the table as one JSON object a data set, on a line of its own");
}

data::FractionRange parse_range(const std::string& option, const std::string& text, Problems& problems) {
  try {
    return data::parse_fraction_range(text);
  } catch (const UserError& error) {
    problems.add(option, ": ", error.what());
    return {};
  }
}

Sources read_sources(const BlendRequest& request) {
  if (!request.ratios.empty()) return data::parse_ratios(read_file(request.ratios), request.ratios);
  if (!request.file_list.empty()) return data::parse_file_list(read_file(request.file_list), request.file_list);
  return data::sources_of(request.prefixes);
}

// What is missing is in the way only where sizes are needed.
void report_missing(const Sources& sources, bool needs_sizes, Problems& problems) {
  std::vector<std::string> missing;
  for (const data::BlendSource& source : sources) {
    if (source.measured) continue;
    missing.push_back(source.prefix);
    if (needs_sizes) problems.add(data::describe_missing(source.prefix));
  }
  if (!missing.empty() && !needs_sizes)
    log_warning(missing.size(), " of ", sources.size(), " data sets do not exist (the first: '", missing.front(),
                "'); their paths stay as they are, and the table has no figures for them. --data-folder DIR looks ",
                "for them elsewhere.");
}

void print_as_json(const Sources& sources, const data::Amounts& amounts) {
  for (const data::BlendSource& source : sources) {
    nlohmann::ordered_json row = {{"prefix", source.prefix},
                                  {"corpus", source.corpus},
                                  {"weight", source.weight},
                                  {"share", amounts.share(source)}};
    if (source.measured) {
      row["documents"] = source.num_documents;
      row["tokens"] = source.num_tokens;
      row["train_tokens"] = source.num_train_tokens;
      row["tokens_read"] = amounts.tokens(source);
      row["epochs"] = amounts.epochs(source);
    }
    print_json(row);
  }
}

void print_table(const Sources& sources, const data::Amounts& amounts) {
  size_t width = 8;
  for (const data::BlendSource& source : sources) width = std::max(width, source.corpus.size());
  const int columns = static_cast<int>(std::min<size_t>(width, 48));
  std::printf("%-*s %13s %17s %9s %17s %8s  %s\n", columns, "corpus", "documents", "tokens", "share", "tokens read",
              "epochs", "data set");
  for (const data::BlendSource& source : sources) {
    const bool known = source.measured;
    std::printf("%-*.*s %13s %17s %8s%% %17s %8s  %s\n", columns, columns, source.corpus.c_str(),
                known ? format_count(source.num_documents).c_str() : "-",
                known ? format_count(source.num_tokens).c_str() : "-",
                format_fixed(100 * amounts.share(source), 3).c_str(),
                known ? format_count(static_cast<int64_t>(amounts.tokens(source))).c_str() : "-",
                known ? format_fixed(amounts.epochs(source), 3).c_str() : "-", source.prefix.c_str());
  }
}

// "5000: 0.75 0:0.95 data/a, 0.25 0:0.95 data/b"
std::string stage_word(const Sources& sources, const data::Amounts& amounts, const BlendRequest& request) {
  std::vector<std::string> parts;
  for (const data::BlendSource& source : sources)
    parts.push_back(concat(format_shortest(amounts.share(source)), " ", request.train_range, " ", source.prefix));
  return concat(request.stage, ": ", join(parts, ", "));
}

// Ids of one tokenizer mean other text in another: no model can learn from both.
void warn_of_two_tokenizers(const Sources& sources) {
  std::vector<std::string> prefixes;
  for (const data::BlendSource& source : sources) prefixes.push_back(source.prefix);
  for (const std::string& line : data::describe_differing_tokenizers(prefixes)) log_warning(line);
}

struct Ranges {
  data::FractionRange train, valid;
  std::optional<data::FractionRange> test;
};

using SplitFiles = std::vector<std::pair<std::string, data::FractionRange>>;  // "train", its share

SplitFiles split_files(const Ranges& ranges) {
  SplitFiles files = {{"train", ranges.train}, {"valid", ranges.valid}};
  if (ranges.test) files.emplace_back("test", *ranges.test);
  return files;
}

std::filesystem::path path_of(const BlendRequest& request, const std::string& set) {
  return std::filesystem::path(request.output_folder) / (set + "-splits.txt");
}

// What is in the way of the split files; empty if nothing is.
std::string describe_existing_files(const BlendRequest& request, const Ranges& ranges) {
  if (request.overwrite || request.output_folder.empty()) return "";
  std::vector<std::filesystem::path> paths;
  for (const auto& [set, range] : split_files(ranges)) paths.push_back(path_of(request, set));
  const std::string existing = describe_existing(paths);
  return existing.empty() ? "" : "--output-folder " + request.output_folder + ": " + existing;
}

void write_split_files(const Sources& sources, const BlendRequest& request, const Ranges& ranges) {
  PendingFolder folder(request.output_folder);
  std::vector<PendingFile> files;
  std::vector<PendingFile*> all;
  for (const auto& [set, range] : split_files(ranges)) {
    const data::SplitFile file{set, range, set != "train" && request.valid_per_corpus,
                               request.relative_to.empty() ? request.output_folder : request.relative_to};
    files.emplace_back(path_of(request, set));
    write_synced(files.back(), data::split_file_content(sources, file));
  }
  for (PendingFile& file : files) all.push_back(&file);
  move_into_place(all);
  folder.keep();
  for (const auto& [set, range] : split_files(ranges))
    log_info("wrote ", path_of(request, set).string(), " for --", set, "-weighted-split-paths-path");
}

Ranges check(const BlendRequest& request, Problems& problems) {
  const int inputs = !request.prefixes.empty() + !request.ratios.empty() + !request.file_list.empty();
  if (inputs != 1) problems.add("give data sets, or --ratios FILE, or --data-file-list FILE; one of them");
  if (!request.ratios.empty() && (request.alpha || !request.epochs.empty()))
    problems.add("--alpha and --epochs take weights from sizes; --ratios gives the weights itself. Leave one out.");
  Ranges ranges{parse_range("--train-range", request.train_range, problems),
                parse_range("--valid-range", request.valid_range, problems), std::nullopt};
  if (!request.test_range.empty()) ranges.test = parse_range("--test-range", request.test_range, problems);
  if (ranges.valid.begin < ranges.train.end && ranges.train.begin < ranges.valid.end)
    problems.add("--train-range ", request.train_range, " and --valid-range ", request.valid_range,
                 " share documents: the model would be validated on what it was trained on");
  return ranges;
}

}  // namespace

int data_blend_main(const std::vector<std::string>& arguments) {
  BlendRequest request;
  OptionTable table("espalier data blend",
                    "Computes the weights of data sets and writes the split files that training reads.");
  add_rows(table, request);
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  const Ranges ranges = check(request, problems);
  const std::map<std::string, double> epochs = data::parse_epochs(request.epochs, problems);
  const std::string existing = describe_existing_files(request, ranges);
  if (!existing.empty()) problems.add(existing);
  problems.raise();

  Sources sources = read_sources(request);
  if (!request.data_folder.empty()) data::relocate(sources, request.data_folder);
  data::measure(sources, ranges.train);
  const bool by_size = !request.prefixes.empty() || request.alpha || !epochs.empty();
  report_missing(sources, by_size, problems);
  data::set_epochs(sources, epochs, problems);
  problems.raise();
  if (by_size) data::weigh_by_size(sources, request.alpha.value_or(1));
  const std::vector<std::string> dropped = data::drop_unweighted(sources);
  if (!dropped.empty()) log_warning("left out, as their weight is 0: ", join(dropped, ", "));
  if (sources.empty()) throw UserError("no data set has a weight above 0", ExitCode::kBadData);
  warn_of_two_tokenizers(sources);

  const data::Amounts amounts(sources, request.train_tokens);
  if (!request.stage.empty()) {
    const std::string word = stage_word(sources, amounts, request);
    data::parse_data_stage(word);  // what training would refuse is refused here
    std::puts(word.c_str());
  } else if (request.json) {
    print_as_json(sources, amounts);
  } else {
    print_table(sources, amounts);
  }
  if (request.output_folder.empty()) return 0;
  clean_up_when_interrupted();
  write_split_files(sources, request, ranges);
  return 0;
}

}  // namespace espalier
