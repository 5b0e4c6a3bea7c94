// espalier data who: which documents a step of a run was made of.
#include <cstdio>
#include <memory>

#include "apps/data/commands.h"
#include "apps/data/run_samples.h"
#include "apps/print_json.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "data/sample_pieces.h"
#include "text/tokenizer.h"

namespace espalier {
namespace {

struct WhoRequest {
  std::string run;
  int64_t step = 0;
  bool text = false, json = false;
};

std::string to_text(const data::SamplePiece& piece, const text::Tokenizer* tokenizer) {
  return concat("  ", data::describe(piece), "\n",
                tokenizer == nullptr ? "" : concat("    ", quoted_json(text_of_piece(piece, *tokenizer)), "\n"));
}

void print_sample(RunSamples& samples, int64_t sample, const WhoRequest& request, const text::Tokenizer* tokenizer) {
  if (request.json) return print_json(sample_json(samples, sample, tokenizer));
  const data::SampleSource& train = samples.train();
  const int64_t number = samples.sampler().sample(sample);
  std::string text =
      concat("sample ", sample, ": ", to_text(samples.place(sample)), "; number ", number, " of ", train.name(),
             train.source_names().size() > 1 ? ", from " + source_of(train, number) : "", "\n");
  for (const data::SamplePiece& piece : train.pieces(number)) text += to_text(piece, tokenizer);
  std::fputs(text.c_str(), stdout);
}

// Whether what is listed is what the step read, as far as records show; says so where it is not.
bool check_record(RunSamples& samples, int64_t step, bool& proved) {
  const std::optional<bool> equal = samples.equals_record(step);
  proved = equal.value_or(false);
  if (proved) return true;
  std::vector<std::string> changes;
  if (equal)
    changes = {concat("the sample hash in the record of step ", step, " is another")};
  else
    changes = samples.order_changes();
  for (const std::string& change : changes) log_warning(change);
  if (!changes.empty())
    log_warning("the token files, or options that decide the order of samples, are not those of the step: what is ",
                "listed is what it would read now, not what it read");
  return changes.empty();
}

}  // namespace

int data_who_main(const std::vector<std::string>& arguments) {
  WhoRequest request;
  OptionTable table("espalier data who",
                    "Lists the documents that a step of a run was, or will be, made of. Options of train after -- "
                    "replace the run's: -- --data-path WHERE-IT-IS-NOW.");
  table.add("--run", request.run, "run folder (--save of the run)").value_name("FOLDER").required();
  table.add("--step", request.step, "number of the step, from 1").minimum(1).required();
  table.add("--text", request.text, "the text of each piece, too");
  table.add("--json", request.json, "one JSON object a sample");
  const auto [words, more] = split_at_dashes(arguments);
  if (!table.parse(words)) return 0;
  RunSamples samples(request.run, request.step, more);
  const plan::SampleRange range = samples.samples_of(request.step);
  const std::unique_ptr<text::Tokenizer> tokenizer = request.text ? tokenizer_of_run(samples.run()) : nullptr;
  bool proved = false;
  const bool good = check_record(samples, request.step, proved);
  log_info("step ", request.step, " of ", samples.run().folder.string(), " (", samples.fate(request.step),
           "): samples ", range.first, " to ", range.first + range.count - 1, proved ? ", their hash as recorded" : "",
           "; options of ", samples.run().options_from,
           samples.run().layout ? concat(", layout ", spec::to_string(*samples.run().layout)) : "");
  for (int64_t sample = range.first; sample < range.first + range.count; ++sample)
    print_sample(samples, sample, request, tokenizer.get());
  return good ? 0 : static_cast<int>(ExitCode::kBadData);
}

}  // namespace espalier
