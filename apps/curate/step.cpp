// espalier curate step NAME: one step of curation over JSONL files.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "apps/curate/commands.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/options.h"
#include "base/output_checks.h"
#include "base/pending_file.h"
#include "base/thread_pool.h"
#include "base/version.h"
#include "curate/input_files.h"
#include "curate/run.h"

namespace espalier {
namespace {

struct StepRequest {
  curate::InputSource source;
  std::vector<std::string> inputs;
  std::string output, report, text_key = "text", memory = "1GiB", temporary_folder;
  int64_t workers = 1;
  bool overwrite = false;
};

void add_rows(OptionTable& table, StepRequest& request, curate::StepMaker* maker) {
  table.group("input and output");
  table
      .add("--input", request.inputs,
           "files, plain or compressed with gzip, zstd, xz or bzip2, or Parquet; a folder stands "
           "for all files in it; - is standard input")
      .value_name("FILE")
      .required();
  add_format_row(table, request.source);
  table
      .add("--output", request.output,
           "the documents that stay, as JSONL, compressed where the name ends in .gz, .zst, .xz or .bz2; as Parquet "
           "where it ends in .parquet")
      .value_name("FILE")
      .required();
  table.add("--report", request.report, "counts and samples, as JSON").value_name("FILE");
  table.add("--text-key", request.text_key, "key of the text in a record").value_name("KEY");
  table.add("--overwrite", request.overwrite, "replace an output or a report that exists");
  if (maker != nullptr) {
    table.group("step");
    maker->add_rows(table);
  }
  table.group("run");
  table.add("--workers", request.workers, "threads; the output does not depend on it")
      .minimum(1)
      .maximum(4096)
      .default_text("all cores");
  table.add("--memory", request.memory, "what a step that must see all documents may hold in memory")
      .value_name("BYTES");
  table
      .add("--temporary-folder", request.temporary_folder,
           "where such a step puts what it does not hold, in a folder of its own that is removed afterwards")
      .value_name("DIR")
      .default_text("OUTPUT.work");
}

std::string step_names() {
  std::string text = "the steps are:\n";
  size_t longest = 0;
  for (const curate::StepKind& kind : curate::step_kinds()) longest = std::max(longest, std::string(kind.name).size());
  for (const curate::StepKind& kind : curate::step_kinds())
    text += concat("  ", kind.name, std::string(longest + 2 - std::string(kind.name).size(), ' '), kind.summary, "\n");
  return text;
}

// Several steps may share a temporary folder, which may hold other things as well.
std::filesystem::path work_folder(const StepRequest& request) {
  if (request.temporary_folder.empty()) return request.output + ".work";
  const std::filesystem::path output = std::filesystem::absolute(request.output);
  return std::filesystem::path(request.temporary_folder) /
         concat(output.filename().string(), "-", hex64(hash64(output.string())), ".work");
}

void check(const StepRequest& request, const curate::InputSource& source, Problems& problems) {
  check(source, "--input", problems);
  std::vector<std::filesystem::path> written, others;
  for (const std::string& file : {request.output, request.report})
    if (!file.empty()) written.emplace_back(file);
  const auto place_of = [](const std::string& file) { return std::filesystem::absolute(file).lexically_normal(); };
  if (!request.output.empty() && !request.report.empty() && place_of(request.output) == place_of(request.report))
    problems.add("--output and --report name the same file");
  for (const std::filesystem::path& file : written) {
    const bool is_input = std::any_of(source.files.begin(), source.files.end(),
                                      [&](const std::string& input) { return is_same_file(input, file); });
    if (is_input)
      problems.add(file.string(), " is an input, which would be replaced while it is read. Give another name.");
    else
      others.push_back(file);
  }
  if (!request.overwrite) {
    const std::string existing = describe_existing(others);
    if (!existing.empty()) problems.add(existing);
  }
  curate::check_output(request.output, problems);
  if (parse_bytes(request.memory).value_or(0) < curate::kLeastMemory)
    problems.add("--memory ", request.memory, ": expected an amount such as 512MiB, at least ",
                 format_bytes(curate::kLeastMemory));
}

nlohmann::ordered_json report_of(const std::string& step, const StepRequest& request, const curate::RunResult& result,
                                 int64_t num_written) {
  nlohmann::ordered_json report = {{"step", step},
                                   {"inputs", request.inputs},
                                   {"output", request.output},
                                   {"input", to_json(result.input)},
                                   {"documents", to_json(result.steps.front())},
                                   {"written", num_written},
                                   {"seconds", result.seconds},
                                   {"workers", request.workers},
                                   {"version", kVersion}};
  if (!result.facts.front().is_null()) report["facts"] = result.facts.front();
  return report;
}

void say_summary(const std::string& step, const curate::RunResult& result, int64_t num_written) {
  const curate::StepTally& tally = result.steps.front();
  log_info(step, ": ", format_count(tally.num_in), " documents in, ", format_count(tally.num_changed), " changed, ",
           format_count(num_written), " written, in ", format_duration(result.seconds));
  for (const auto& [reason, count] : tally.dropped) log_info("  dropped ", format_count(count), ": ", reason);
  warn_of_input(result.input);
}

}  // namespace

void warn_of_input(const curate::InputTally& input) {
  if (input.num_malformed > 0) {
    std::string text = format_counted(input.num_malformed, "record") +
                       (input.num_malformed == 1 ? " is not a document:" : " are not documents:");
    for (const std::string& description : input.first_malformed) text += "\n  " + description;
    const int64_t more = input.num_malformed - static_cast<int64_t>(input.first_malformed.size());
    if (more > 0) text += concat("\n  and ", format_count(more), " more");
    log_warning(text);
  }
  if (input.num_replaced > 0) log_warning(format_count(input.num_replaced), " bytes that are not UTF-8 became U+FFFD");
}

namespace {

int run_step(const curate::StepKind& kind, const std::vector<std::string>& arguments) {
  StepRequest request;
  request.workers = num_usable_cores();
  curate::RunPlan plan;
  plan.steps.push_back({kind.name, kind.make()});
  curate::StepMaker& maker = *plan.steps.back().maker;
  OptionTable table(concat("espalier curate step ", kind.name), kind.summary);
  add_rows(table, request, &maker);
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  request.source.files = curate::expand_files(request.inputs, request.source.format, problems);
  request.source.text_key = request.text_key;
  plan.sources = {request.source};
  check(request, plan.sources.front(), problems);
  maker.check(problems);
  problems.raise();
  if (const std::string repeated = curate::describe_repeated(request.source.files); !repeated.empty())
    log_warning(repeated);

  clean_up_when_interrupted();
  plan.workers = request.workers;
  plan.memory_bytes = *parse_bytes(request.memory);
  plan.work_folder = work_folder(request);
  const std::unique_ptr<curate::Output> output = curate::document_output(request.output, request.text_key);
  const curate::RunResult result = curate::run(plan, [&](curate::Document&& document) { output->write(document); });
  if (result.input.num_documents == 0 && result.input.num_malformed > 0)
    throw UserError(concat("none of the ", format_count(result.input.num_malformed),
                           " records is a document. The first: ", result.input.first_malformed.front(),
                           ". Nothing was written; --format says what the files hold."),
                    ExitCode::kBadData);
  output->prepare();
  output->move_into_place();
  if (!request.report.empty())
    write_file_atomically(request.report,
                          report_of(kind.name, request, result, output->num_documents())
                                  .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
                              "\n");
  say_summary(kind.name, result, output->num_documents());
  return 0;
}

}  // namespace

int curate_step_main(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && !arguments[0].starts_with("-")) {
    if (const curate::StepKind* kind = curate::find_step_kind(arguments[0]))
      return run_step(*kind, {arguments.begin() + 1, arguments.end()});
    std::vector<std::string> names;
    for (const curate::StepKind& kind : curate::step_kinds()) names.emplace_back(kind.name);
    const std::vector<std::string> near = nearest_names(arguments[0], names);
    throw UserError(
        concat("there is no step ", arguments[0], near.empty() ? "" : "; did you mean " + join(near, " or ") + "?",
               near.empty() ? "; " : " ", step_names()),
        ExitCode::kUsage);
  }
  // Without a name: what all steps have in common.
  StepRequest request;
  request.workers = num_usable_cores();
  std::vector<std::string> names;
  for (const curate::StepKind& kind : curate::step_kinds()) names.emplace_back(kind.name);
  OptionTable table(
      "espalier curate step",
      "One step of data curation over JSONL files. Its name comes first, and its own options are shown by " +
          std::string("curate step NAME --help. The steps are ") + join(names, ", ") + ".");
  add_rows(table, request, nullptr);
  Problems problems;
  if (!table.parse(arguments, problems)) return 0;
  throw UserError("no step is named; " + step_names(), ExitCode::kUsage);
}

}  // namespace espalier
