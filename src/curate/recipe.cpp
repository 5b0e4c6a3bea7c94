#include "curate/recipe.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "base/toml_rows.h"
#include "curate/file_version.h"
#include "curate/input_files.h"
#include "text/tokenizer_fingerprint.h"

namespace espalier::curate {
namespace {

class RecipeReader {
 public:
  RecipeReader(const std::string& file, Problems& problems) : problems_(problems) { recipe_.file = file; }

  Recipe read() {
    toml::table table;
    if (!read_toml(recipe_.file, recipe_.content, table, problems_)) return std::move(recipe_);
    recipe_.workers = num_usable_cores();
    if (!table.empty() && std::none_of(table.begin(), table.end(), [](const auto& entry) {
          const std::string_view key = entry.first.str();
          return key == "output" || key == "mix" || key == "run" || key == "source" || key == "step";
        })) {
      std::vector<std::string> found;
      for (const auto& [key, node] : table) found.push_back(std::string(key.str()));
      if (std::all_of(found.begin(), found.end(), [](const std::string& key) {
            return nearest_names(key, {"output", "mix", "run", "source", "step"}).empty();
          })) {
        problems_.add(recipe_.file, ": no recipe of curate, which has [output], [[source]] and [[step]]: found ",
                      join(found, ", "), ". A recipe of options is given as espalier train gpt --recipe ",
                      recipe_.file);
        return std::move(recipe_);
      }
    }
    for (const auto& [key, node] : table) check_top(std::string(key.str()), node);
    read_output(table);
    read_mix(table);
    read_run(table);
    read_list(table, "source", [this](const toml::table& source) { read_source(source); });
    read_list(table, "step", [this](const toml::table& step) { read_step(step); });
    check_mix_names(table);
    if (problems_.empty())
      if (const std::string problem = order_problem(recipe_.steps); !problem.empty())
        problems_.add(recipe_.file, ": ", problem);
    std::vector<std::string> files;
    for (const InputSource& source : recipe_.sources)
      files.insert(files.end(), source.files.begin(), source.files.end());
    if (const std::string repeated = describe_repeated(files); problems_.empty() && !repeated.empty())
      log_warning(repeated);
    if (recipe_.sources.empty() && problems_.empty())
      problems_.add(recipe_.file, ": there is no [[source]] with files");
    return std::move(recipe_);
  }

 private:
  std::string at(const toml::node& node) const { return concat(recipe_.file, ":", toml_line(node)); }

  void check_top(const std::string& key, const toml::node& node) {
    const std::vector<std::string> known = {"output", "mix", "run", "source", "step"};
    if (std::find(known.begin(), known.end(), key) != known.end()) return;
    const std::vector<std::string> near = nearest_names(key, known);
    problems_.add(at(node), ": unknown table ", key, near.empty() ? "" : "; did you mean " + join(near, " or ") + "?",
                  "; a recipe has [output], [mix], [run], [[source]] and [[step]]");
  }

  void read_rows(const toml::table& table, const std::string& what, OptionTable& rows,
                 const std::set<std::string>& without) {
    read_toml_rows(table, {recipe_.file, what}, rows, without, problems_);
  }
  void add(const toml::table& table, const std::string& what, const std::string& message) {
    add_toml_problem(table, {recipe_.file, what}, message, problems_);
  }

  void read_output(const toml::table& table) {
    const toml::node* node = table.get("output");
    if (node == nullptr || !node->is_table()) {
      problems_.add(recipe_.file, ": there is no [output] with a folder");
      return;
    }
    OutputPlan& output = recipe_.output;
    OptionTable rows("recipe", "");
    rows.add("--folder", output.folder, "where all output goes").required();
    rows.add("--by", output.by, "key whose value names the file of a document");
    std::string layout = "files";
    rows.add("--layout", layout, "files of one folder, or partitions: a folder KEY=VALUE for each value of `by`")
        .choices({"files", "partitions"});
    rows.add("--format", output.format, "of the documents").choices({"jsonl", "parquet"});
    rows.add("--compression", output.compression, "of the documents")
        .choices({"none", "gz", "zst", "xz", "bz2", "snappy"})
        .default_text("none for JSONL, zst for Parquet");
    rows.add("--tokenizer", output.tokenizer, "file or folder; writes token files beside the JSONL");
    rows.add_truth("--append-eod", output.append_eod, "end every document with the end-of-document token");
    read_rows(*node->as_table(), "[output]", rows, {});
    output.is_partitioned = layout == "partitions";
    if (output.is_partitioned && output.by.empty())
      problems_.add(at(*node), ", [output]: layout = \"partitions\" needs the key to part by: by = \"language\", ",
                    "for example");
    choose_compression(*node, output);
    if (output.tokenizer.empty()) return;
    try {
      recipe_.tokenizer = text::open_tokenizer(output.tokenizer);
      if (output.append_eod && !recipe_.tokenizer->eod())
        problems_.add(at(*node), ", [output]: ", recipe_.tokenizer->description(),
                      " has no end-of-document token; write append_eod = false");
    } catch (const UserError& error) {
      problems_.add(at(*node), ", [output]: tokenizer: ", error.what());
    }
  }

  void choose_compression(const toml::node& node, OutputPlan& output) {
    const bool is_parquet = output.format == "parquet";
    if (output.compression.empty()) output.compression = is_parquet ? "zst" : "none";
    const bool is_of_jsonl = output.compression == "xz" || output.compression == "bz2";
    if (is_parquet ? is_of_jsonl : output.compression == "snappy")
      problems_.add(at(node), ", [output]: compression = \"", output.compression, "\" is not for ", output.format,
                    "; use ", is_parquet ? "none, snappy, gz or zst" : "none, gz, zst, xz or bz2");
    Problems found;
    check_output(output.file_of("documents"), found);
    for (const std::string& message : found.messages()) problems_.add(at(node), ", [output]: ", message);
  }

  void read_mix(const toml::table& table) {
    const toml::node* node = table.get("mix");
    if (node == nullptr) return;
    if (!node->is_table()) {
      problems_.add(at(*node), ": mix is not a table; write [mix]");
      return;
    }
    BlendPlan& plan = recipe_.mix.emplace();
    OptionTable rows("recipe", "");
    add_rows(rows, plan);
    for (const auto& [key, value] : *node->as_table()) note_files(value);
    const size_t before = problems_.messages().size();
    read_rows(*node->as_table(), "[mix]", rows, {});
    if (problems_.messages().size() > before) return;
    Problems found;
    check(plan, found);
    if (recipe_.output.tokenizer.empty()) found.add("the shares count tokens: give [output] a tokenizer");
    for (const std::string& message : found.messages()) add(*node->as_table(), "[mix]", message);
  }

  // Where it is known before the run which outputs there are.
  void check_mix_names(const toml::table& table) {
    if (!recipe_.mix) return;
    std::vector<std::string> values;
    if (recipe_.output.by == "source")
      for (const InputSource& source : recipe_.sources) values.push_back(source.name);
    if (recipe_.output.by == "language") values = kept_languages_;
    std::vector<std::string> groups;
    for (const std::string& value : values) groups.push_back(recipe_.output.group_of(value));
    if (recipe_.output.by.empty()) groups = {recipe_.output.group_of(std::nullopt)};
    if (groups.empty()) return;
    for (const auto& [name, number] : recipe_.mix->epochs_of) {
      if (std::find(groups.begin(), groups.end(), name) != groups.end()) continue;
      const std::vector<std::string> near = nearest_names(name, groups, /*max_distance=*/4);
      add(*table["mix"].as_table(), "[mix]",
          concat("epochs ", name, "=", format_shortest(number), ": there is no output of that name; ",
                 near.empty() ? concat(groups.size() == 1 ? "the only one is " : "they are ", join(groups, ", "))
                              : concat("did you mean ", join(near, " or "), "?"),
                 recipe_.output.by.empty() ? " ([output] by = \"source\" makes one of each source)" : ""));
    }
  }

  void read_run(const toml::table& table) {
    const toml::node* node = table.get("run");
    if (node == nullptr) return;
    if (!node->is_table()) {
      problems_.add(at(*node), ": run is not a table; write [run]");
      return;
    }
    std::string memory = "1GiB", shard = "32MiB";
    OptionTable rows("recipe", "");
    rows.add("--workers", recipe_.workers, "threads").minimum(1).maximum(4096);
    rows.add("--memory", memory, "memory for a step that must see all documents");
    rows.add("--shard", shard, "input between two points from which an interrupted run can resume");
    read_rows(*node->as_table(), "[run]", rows, {});
    take_bytes(*node, "memory", memory, kLeastMemory, recipe_.memory_bytes);
    take_bytes(*node, "shard", shard, 1, recipe_.shard_bytes);
  }

  void take_bytes(const toml::node& node, const char* key, const std::string& text, int64_t least, int64_t& bytes) {
    const std::optional<int64_t> amount = parse_bytes(text);
    if (amount && *amount >= least)
      bytes = *amount;
    else
      problems_.add(at(node), ", [run]: ", key, " ", text, ": expected an amount such as 512MiB",
                    least > 1 ? concat(", at least ", format_bytes(least)) : "");
  }

  template <class Read>
  void read_list(const toml::table& table, const std::string& name, Read read) {
    const toml::node* node = table.get(name);
    if (node == nullptr) return;
    const toml::array* list = node->as_array();
    if (list == nullptr) {
      problems_.add(at(*node), ": [", name, "] must be a list; write [[", name, "]]");
      return;
    }
    for (const toml::node& element : *list)
      if (const toml::table* one = element.as_table())
        read(*one);
      else
        problems_.add(at(element), ": ", name, " holds something other than a table");
  }

  void read_source(const toml::table& table) {
    InputSource source;
    OptionTable rows("recipe", "");
    rows.add("--name", source.name, "for the report; documents carry it under the key source").required();
    std::string manifest;
    rows.add("--files", source.files, "files, with the wildcards * and ?; a folder means all files in it");
    rows.add("--manifest", manifest, "a file that names files, one a line");
    rows.add("--text-key", source.text_key, "key of a record whose text is taken");
    rows.add_truth("--may-be-empty", source.may_be_empty, "no error where no record is a document");
    add_format_row(rows, source);
    const std::string what = concat("[[source]] ", table["name"].value_or(std::string("without a name")));
    const size_t before = problems_.messages().size();
    read_rows(table, what, rows, {"metadata"});
    const bool is_read = problems_.messages().size() == before;
    source.metadata.push_back({"source", nlohmann::json(source.name).dump()});
    if (const toml::node* metadata = table.get("metadata")) read_metadata(*metadata, source);
    Problems found;
    if (is_read && source.files.empty() == manifest.empty())
      found.add(manifest.empty() ? "there are no files; name them with files, or with a manifest"
                                 : "files and a manifest are both given; give one of them");
    if (!manifest.empty()) source.files = read_manifest(manifest, found);
    source.files = expand_files(source.files, source.format, found);
    check(source, "file", found);
    for (const std::string& message : found.messages()) add(table, what, message);
    for (const std::string& file : source.files)
      if (file == "-") add(table, what, "standard input cannot be read again after an interruption; name files");
    for (const InputSource& other : recipe_.sources)
      if (other.name == source.name) add(table, what, "there are two sources of this name");
    recipe_.sources.push_back(std::move(source));
  }

  void read_metadata(const toml::node& node, InputSource& source) {
    if (!node.is_table()) {
      problems_.add(at(node), ": metadata is not a table; write metadata = { licence = \"...\" }");
      return;
    }
    for (const auto& [key, value] : *node.as_table()) {
      std::ostringstream json;
      if (value.is_string())
        json << nlohmann::json(value.as_string()->get()).dump();
      else if (value.is_integer())
        json << value.as_integer()->get();
      else if (value.is_boolean())
        json << (value.as_boolean()->get() ? "true" : "false");
      else
        problems_.add(at(node), ": metadata ", std::string(key.str()),
                      " is neither text, a whole number, true nor false");
      source.metadata.push_back({std::string(key.str()), json.str()});
    }
  }

  void read_step(const toml::table& table) {
    const std::string name = table["name"].value_or(std::string());
    const StepKind* kind = find_step_kind(name);
    if (kind == nullptr) {
      std::vector<std::string> names;
      for (const StepKind& known : step_kinds()) names.emplace_back(known.name);
      const std::vector<std::string> near = nearest_names(name, names);
      problems_.add(
          at(table), ": [[step]] ", name.empty() ? "without a name" : concat("name = \"", name, "\": no such step"),
          near.empty() ? "" : "; did you mean " + join(near, " or ") + "?", "; the steps are ", join(names, ", "));
      return;
    }
    std::unique_ptr<StepMaker> maker = kind->make();
    OptionTable rows("recipe", "");
    maker->add_rows(rows);
    const std::string what = concat("[[step]] ", name);
    const size_t before = problems_.messages().size();
    read_rows(table, what, rows, {"name"});
    if (problems_.messages().size() == before) {
      Problems found;
      maker->check(found);
      for (const std::string& message : found.messages()) add(table, what, message);
    }
    recipe_.steps.push_back({name, std::move(maker)});
    if (const toml::array* kept = name == "language" ? table["keep"].as_array() : nullptr)
      for (const toml::node& language : *kept) kept_languages_.push_back(language.value_or(std::string()));
    for (const auto& [key, value] : table) note_files(value);
  }

  // Of the values of an option: FILE, or NAME=FILE.
  void note_files(const toml::node& value) {
    if (const toml::array* list = value.as_array())
      for (const toml::node& element : *list) note_files(element);
    const std::string text = value.value_or(std::string());
    std::error_code error;
    for (const std::string& file : {text, text.substr(text.find('=') + 1)})
      if (std::filesystem::is_regular_file(file, error)) {
        recipe_.step_files.push_back(file);
        return;
      }
  }

  Problems& problems_;
  Recipe recipe_;
  std::vector<std::string> kept_languages_;  // by a step "language"
};

}  // namespace

std::string OutputPlan::partition_file_of(const std::optional<std::string>& value) const {
  return concat(kPartitionedTable, "/", partition_folder(by, value), "/", file_of("part-00000"));
}

std::string OutputPlan::group_of(const std::optional<std::string>& value) const {
  if (by.empty()) return "documents";
  std::string name;
  for (const char c : value.value_or("unknown")) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    name += plain || (c == '.' && !name.empty()) ? c : '_';
  }
  return name.empty() ? "unknown" : name;
}

std::string OutputPlan::file_of(const std::string& group) const {
  if (format == "parquet") return group + ".parquet";
  return group + ".jsonl" + (compression == "none" ? "" : "." + compression);
}

const std::string& Recipe::fingerprint() const {
  if (!fingerprint_.empty()) return fingerprint_;
  std::string facts = content;
  const auto add_file = [&](const std::string& file) { facts += concat("\n", file, " ", file_version(file)); };
  for (const InputSource& source : sources) std::for_each(source.files.begin(), source.files.end(), add_file);
  std::for_each(step_files.begin(), step_files.end(), add_file);
  if (tokenizer != nullptr) facts += concat("\n", text::fingerprint(*tokenizer));
  return fingerprint_ = hex64(hash64(facts));
}

Recipe read_recipe(const std::string& file, Problems& problems) { return RecipeReader(file, problems).read(); }

}  // namespace espalier::curate
