// espalier data where: in which steps of a run a document was, or will be, seen.
#include <cstdio>
#include <map>

#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "data_commands.h"
#include "print_json.h"
#include "run_samples.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

struct WhereRequest {
  std::string run, file;
  int64_t document = 0;
  bool json = false;
};

// The sources of the blend that read the file; more than one where it is named with several ranges.
std::vector<int64_t> sources_of(const RunSamples& samples, const std::string& file) {
  const auto& parts = samples.train().parts();
  std::vector<int64_t> sources;
  for (size_t at = 0; at < parts.size(); ++at)
    if (file.empty() || parts[at].store->prefix() == file || samples.train().source_names()[at] == file)
      sources.push_back(static_cast<int64_t>(at));
  bool several = false;
  for (const int64_t source : sources)
    several = several || parts[static_cast<size_t>(source)].store->prefix() !=
                             parts[static_cast<size_t>(sources[0])].store->prefix();
  if (!sources.empty() && !several) return sources;
  std::vector<std::string> names;
  for (const auto& part : parts) names.push_back(part.store->prefix());
  throw UserError(concat(several ? "the run reads several data sets. Choose one with --file: "
                                 : concat("--file ", file, ": the run does not read it. It reads "),
                         join(names, ", ")),
                  ExitCode::kUsage);
}

data::DocumentRange sequences_of(const data::TokenStore& store, int64_t document) {
  if (document >= store.num_documents())
    throw UserError(concat("--document ", document, ": ", store.prefix(), " has ", format_count(store.num_documents()),
                           " documents, numbered from 0"),
                    ExitCode::kUsage);
  return {store.first_sequence(document), store.first_sequence(document + 1)};
}

struct Seen {
  SamplePlace place;
  data::SamplePiece piece;
};

// Each reading of the document, in the order of the run; `num_unread` samples that hold it come after the run's end.
std::vector<Seen> find(RunSamples& samples, const std::vector<int64_t>& sources, const data::DocumentRange& sequences,
                       int64_t& num_unread) {
  std::map<std::pair<int64_t, int64_t>, Seen> seen;  // by sample of the run, and place in it
  const int64_t end = samples.steps().samples.end();
  for (const int64_t source : sources)
    for (const data::GptDataset::Found& found : samples.train().find(source, sequences)) {
      const std::vector<int64_t> places = samples.sampler().places(found.number, end);
      num_unread += places.empty();
      for (const int64_t sample : places)
        seen.emplace(std::pair(sample, found.piece.at), Seen{samples.place(sample), found.piece});
    }
  std::vector<Seen> all;
  for (auto& [where, one] : seen) all.push_back(std::move(one));
  return all;
}

void print(const RunSamples& samples, const Seen& seen, const WhereRequest& request) {
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
  std::printf("step %lld (%s), sample %lld: %s: tokens %lld to %lld, at %lld of the sample\n",
              static_cast<long long>(seen.place.step), fate.c_str(), static_cast<long long>(seen.place.sample),
              to_text(seen.place).c_str(), static_cast<long long>(piece.offset),
              static_cast<long long>(piece.offset + piece.length - 1), static_cast<long long>(piece.at));
}

std::string document_text(const data::TokenStore& store, int64_t document, const data::DocumentRange& sequences) {
  int64_t tokens = 0;
  for (int64_t sequence = sequences.begin; sequence < sequences.end; ++sequence) tokens += store.size(sequence);
  return concat("document ", document, " of ", store.prefix(), " (", format_count(tokens), " tokens)");
}

// Why there is nothing to show.
std::string explain_unseen(const RunSamples& samples, const std::vector<int64_t>& sources,
                           const data::DocumentRange& sequences, int64_t num_unread) {
  if (num_unread > 0) return "the run ends before the samples that hold it";
  for (const int64_t source : sources) {
    const data::DocumentRange& range = samples.train().parts()[static_cast<size_t>(source)].documents;
    if (sequences.begin < range.end && sequences.end > range.begin)
      return "it is among the training documents, and no sample holds a token of it: it is empty, or the last tokens "
             "of an epoch, which fill no sample";
  }
  const data::DocumentRange& range = samples.train().parts()[static_cast<size_t>(sources[0])].documents;
  return concat("the training set reads documents ", range.begin, " to ", range.end - 1, " of that file");
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
  const std::vector<int64_t> sources = sources_of(samples, request.file);
  const data::TokenStore& store = *samples.train().parts()[static_cast<size_t>(sources[0])].store;
  const data::DocumentRange sequences = sequences_of(store, request.document);
  const std::vector<std::string> changes = samples.order_changes();
  for (const std::string& change : changes) log_warning(change);
  if (!changes.empty())
    log_warning("the token files, or options that decide the order of samples, are not those of the newest ",
                "checkpoint: what is listed holds for the files as they are now");
  int64_t num_unread = 0;
  const std::vector<Seen> all = find(samples, sources, sequences, num_unread);
  log_info(document_text(store, request.document, sequences), ": ",
           all.empty() ? concat("never seen; ", explain_unseen(samples, sources, sequences, num_unread))
                       : concat("read ", format_count(static_cast<int64_t>(all.size())),
                                all.size() == 1 ? " time" : " times", ", a piece a sample"));
  for (const Seen& seen : all) print(samples, seen, request);
  return changes.empty() ? 0 : static_cast<int>(ExitCode::kBadData);
}

}  // namespace espalier
