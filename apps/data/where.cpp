// espalier data where: in which steps of a run a document was, or will be, seen.
#include <algorithm>
#include <cstdio>
#include <set>

#include "apps/data/commands.h"
#include "apps/data/run_samples.h"
#include "apps/print_json.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;
using Words = std::vector<std::string>;

struct WhereRequest {
  std::string run, file;
  int64_t document = 0;
  bool json = false;
};

using Files = std::vector<data::TracedFile>;

// What the run reads under that name: a file may be named with several ranges, and a data set of pairs has two.
Files files_of(const RunSamples& samples, const std::string& name) {
  const Files all = samples.train().traced_files();
  Files files;
  for (const data::TracedFile& file : all)
    if (name.empty() || file.store->prefix() == name || file.data_set == name ||
        samples.train().source_names()[static_cast<size_t>(file.source)] == name)
      files.push_back(file);
  const bool several = std::any_of(files.begin(), files.end(), [&](const data::TracedFile& file) {
    return file.data_set != files.front().data_set;
  });
  if (!files.empty() && !several) return files;
  Words names;
  for (const data::TracedFile& file : all) names.push_back(file.store->prefix());
  throw UserError(concat(several ? "the run reads several data sets. Choose one with --file: "
                                 : concat("--file ", name, ": the run does not read it. It reads "),
                         join(names, ", ")),
                  ExitCode::kUsage);
}

void check_document(const data::TokenStore& store, int64_t document) {
  if (document >= store.num_documents())
    throw UserError(concat("--document ", document, ": ", store.prefix(), " has ", format_count(store.num_documents()),
                           " documents, numbered from 0"),
                    ExitCode::kUsage);
}

void print(const RunSamples& samples, const Files& files, const Sighting& seen, const WhereRequest& request) {
  const std::string fate = samples.fate(seen.place.step);
  const data::SamplePiece& piece = seen.piece;
  if (request.json) {
    Json object = to_json(seen.place);
    object["fate"] = fate;
    object["file"] = piece.store->prefix();
    object["document"] = request.document;
    object["sequence"] = piece.sequence;
    object["offset"] = piece.offset;
    object["length"] = piece.length;
    object["at"] = piece.at;
    return print_json(object);
  }
  const data::TokenStore& store = *piece.store;
  const std::string text =
      concat("step ", seen.place.step, " (", fate, "), sample ", seen.place.sample, ": ", to_text(seen.place), ": ",
             store.num_sequences() == store.num_documents() ? "" : concat("sequence ", piece.sequence, ", "), "tokens ",
             piece.offset, " to ", piece.offset + piece.length - 1,
             files.size() > 1 ? concat(" of ", store.prefix()) : "", ", at ", piece.at, " of the sample\n");
  std::fputs(text.c_str(), stdout);
}

// "document 7 of data/wiki (1,745 tokens)"; of a pair both files.
std::string document_text(const Files& files, int64_t document) {
  std::set<const data::TokenStore*> stores;
  Words texts;
  for (const data::TracedFile& file : files) {
    if (!stores.insert(file.store).second) continue;
    const data::DocumentRange sequences = sequences_of(*file.store, document);
    int64_t tokens = 0;
    for (int64_t sequence = sequences.begin; sequence < sequences.end; ++sequence) tokens += file.store->size(sequence);
    texts.push_back(concat(file.store->prefix(), " (", format_count(tokens), " tokens)"));
  }
  return concat("document ", document, " of ", join(texts, " and "));
}

// Why there is nothing to show.
std::string explain_unseen(const Files& files, int64_t document, int64_t num_unread) {
  if (num_unread > 0) return "the run ends before the samples that hold it";
  for (const data::TracedFile& file : files) {
    const data::DocumentRange sequences = sequences_of(*file.store, document);
    if (sequences.begin < file.sequences.end && sequences.end > file.sequences.begin)
      return "it is among the training documents, and no sample holds a token of it: it is empty, or left out, or the "
             "last tokens of an epoch, which fill no sample (docs/data-path.md)";
  }
  const data::TracedFile& file = files.front();
  return concat("the training set reads documents ", data::document_of(*file.store, file.sequences.begin), " to ",
                data::document_of(*file.store, file.sequences.end - 1), " of that file");
}

}  // namespace

int data_where_main(const std::vector<std::string>& arguments) {
  WhereRequest request;
  OptionTable table("espalier data where",
                    "Lists the steps and samples of a run in which a document was, or will be, seen. Options of train "
                    "after -- replace the run's: -- --data-path WHERE-IT-IS-NOW.");
  table.add("--run", request.run, "run folder (--save of the run)").value_name("FOLDER").required();
  table.add("--file", request.file, "which data set, by its prefix or its name, if the run reads several")
      .value_name("PREFIX");
  table.add("--document", request.document, "number of the document in that file, from 0").minimum(0).required();
  table.add("--json", request.json, "one JSON object for each time a piece of it is read");
  const auto [words, more] = split_at_dashes(arguments);
  if (!table.parse(words)) return 0;
  RunSamples samples(request.run, std::nullopt, more);
  const Files files = files_of(samples, request.file);
  for (const data::TracedFile& file : files) check_document(*file.store, request.document);
  const std::vector<std::string> changes = samples.order_changes();
  for (const std::string& change : changes) log_warning(change);
  if (!changes.empty())
    log_warning("the token files, or options that decide the order of samples, are not those of the newest ",
                "checkpoint: what is listed holds for the files as they are now");
  int64_t num_unread = 0;
  const std::vector<Sighting> all = find_sightings(samples, files, request.document, num_unread);
  log_info(document_text(files, request.document), ": ",
           all.empty() ? concat("never seen; ", explain_unseen(files, request.document, num_unread))
                       : concat("read ", format_count(static_cast<int64_t>(all.size())),
                                all.size() == 1 ? " time" : " times", ", a piece a sample"));
  for (const Sighting& seen : all) print(samples, files, seen, request);
  return changes.empty() ? 0 : static_cast<int>(ExitCode::kBadData);
}

}  // namespace espalier
