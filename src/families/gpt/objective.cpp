// What a GPT is trained to predict: the rows of --objective, and what goes with it and what does not.
#include <algorithm>

#include "base/format.h"
#include "base/log.h"
#include "config/resolving.h"
#include "config/unused_options.h"
#include "data/packed_dataset.h"
#include "data/token_files.h"
#include "data/token_probe.h"
#include "families/gpt/internal/gpt.h"

namespace espalier::families {
namespace {

using data::Objective;
using Kind = Objective::Kind;

// Names an option that was given where it means nothing.
class ObjectiveChecks {
 public:
  ObjectiveChecks(const OptionTable& table, Problems& problems) : table_(table), problems_(problems) {}

  void refuse(const char* name, const char* why) {
    const Option& option = *table_.find(name);
    if (option.values() != option.default_values()) problems_.add(table_.origin(name), " ", why, ". Leave it out");
  }

 private:
  const OptionTable& table_;
  Problems& problems_;
};

}  // namespace

void add_objective_rows(OptionTable& table, Objective& objective) {
  table
      .add_choice("--objective", objective.kind,
                  {{"causal", Kind::kCausal}, {"prefix", Kind::kPrefix}, {"multitask", Kind::kMultitask}},
                  "causal: every token from those before it; prefix: after a prefix of random length that is seen as "
                  "a whole (pretrain_prefix_lm); multitask: the targets of packed pairs PREFIX_inputs_document, "
                  "PREFIX_targets_document (finetune_t0)")
      .common();
  table.add("--prefixlm", objective.whole_input,
            "multitask: the tokens of an input all see each other (finetune_t0_non_causal_decoder)");
  table.add("--norm-target-loss", objective.norm_target_loss,
            "multitask: every target weighs the same, not every token of one (BLOOMZ)");
  table.add("--loss-on-targets-only", objective.loss_on_targets_only, "prefix: no loss inside the prefix");
  table.add("--reweight-loss-based-on-position-frequency", objective.reweight_positions,
            "prefix: the label of place i of s weighs 2 (s - i) / (s + 1), since later ones are targets more often");
}

void check_objective_rows(const OptionTable& table, const Objective& objective, Problems& problems) {
  ObjectiveChecks checks(table, problems);
  const bool is_prefix = objective.kind == Kind::kPrefix;
  if (objective.kind == Kind::kCausal)
    checks.refuse("--loss-on-targets-only", "needs --objective prefix: without a prefix every token is a target");
  if (!is_prefix)
    checks.refuse("--reweight-loss-based-on-position-frequency",
                  "needs --objective prefix, where later places are targets more often than earlier ones");
  if (objective.kind == Kind::kMultitask) {
    checks.refuse("--reset-attention-mask",
                  "is for samples that run over the ends of documents; attention stays inside each packed pair anyway");
    return;
  }
  checks.refuse("--prefixlm", is_prefix ? "is for the inputs of packed pairs (--objective multitask); the tokens of a "
                                          "prefix see each other anyway"
                                        : "needs --objective multitask, whose inputs then see all of themselves");
  checks.refuse("--norm-target-loss", "needs --objective multitask, whose targets then weigh the same");
}

data::RowRules row_rules(const config::RunConfig& run) { return row_rules(run, run.model.as<GptSettings>().objective); }

data::RowRules row_rules(const config::RunConfig& run, const Objective& objective) {
  data::RowRules rules;
  rules.objective = objective;
  rules.text.reset_position_ids = run.data.reset_position_ids;
  rules.text.reset_attention_mask = run.data.reset_attention_mask;
  rules.text.eod_mask_loss = run.data.eod_mask_loss;
  rules.seed = run.training.seed;
  rules.packing = run.data.packing;
  rules.lengths = run.data.length_stages;
  return rules;
}

namespace internal {
namespace {

// What else decides the samples is for text that runs on from document to document.
void check_running_text(const config::Resolving& resolving, const Objective& objective) {
  if (objective.kind == Kind::kCausal) return;
  const config::DataConfig& data = resolving.run.data;
  const auto refuse = [&](const char* name, const char* why) {
    resolving.problems.add(resolving.origin(name), " and ", resolving.origin("--objective"),
                           " exclude each other: ", why, ". Leave one out");
  };
  if (!data.seq_length_stages.empty())
    refuse("--seq-length-stages", "prefixes and pairs are drawn for sequences of one length");
  if (data.packing == data::Packing::kBestFit)
    refuse("--packing", objective.kind == Kind::kPrefix ? "prefixes are drawn for running text"
                                                        : "pairs are packed in a way of their own");
  if (objective.kind == Kind::kMultitask && data.sample_order == data::OrderKind::kImplicit)
    refuse("--sample-order", "pairs are packed in an order of their own");
  if (objective.kind == Kind::kMultitask && !data.data_stages.empty())
    refuse("--data-stages", "the pairs of a run come from one blend");
}

}  // namespace

void check_objective(const config::Resolving& resolving, const GptSettings& settings) {
  check_objective_rows(resolving.table, settings.objective, resolving.problems);
  check_running_text(resolving, settings.objective);
  if (settings.objective.sees_whole_prompt() && settings.shape.window_size > 0)
    resolving.problems.add(
        resolving.origin("--window-size"), " and ", resolving.origin("--objective"),
        " are mutually exclusive: what is given is seen as a whole, and a window shows at most the last ",
        settings.shape.window_size, " tokens. Leave --window-size out");
}

void find_unused_by_objective(const GptSettings& settings, config::UnusedOptions& unused) {
  const bool is_multitask = settings.objective.kind == Kind::kMultitask;
  unused.add_if(is_multitask, {"--loss-on-targets-only"}, "--objective multitask has no other loss");
  unused.add_if(is_multitask, {"--reset-position-ids"}, "positions restart at each packed pair");
}

namespace {

// What trains without an error and is not what was meant: sentences in place of documents, and rules for the ends of
// documents that data made without --append-eod do not have.
void warn_of_documents(const data::TextMaskOptions& text, const data::DataPlan& plan) {
  for (const data::DataSource& source : plan.train.sources) {
    if (!data::find_token_files(source.prefix)) continue;  // reported by those who check the files
    try {
      const data::TokenStore store(source.prefix);
      if (store.num_sequences() > store.num_documents())
        warn_once(concat("'", source.prefix, "' keeps the sentences of its documents apart (--split-sentences), and a ",
                         "GPT takes each for a document: it reads them in any order"));
      if (!text.eod) continue;
      bool has_end = false;
      data::probe_tokens(store, {0, store.num_sequences()}, [&](const data::TokenProbe& probe) {
        has_end = has_end || std::find(probe.ids.begin(), probe.ids.end(), *text.eod) != probe.ids.end();
      });
      if (!has_end && store.num_sequences() > 0)
        warn_once(concat("'", source.prefix, "' does not end its documents with the end-of-document token ", *text.eod,
                         ": --reset-position-ids, --reset-attention-mask and --eod-mask-loss change nothing there. ",
                         "Rebuild it with 'espalier preprocess --append-eod'"));
    } catch (const UserError&) {
      continue;  // damaged files are reported when they are read
    }
  }
}

}  // namespace

void check_gpt_data(const data::RowRules& rules, int64_t sequence_length, const text::Tokenizer* tokenizer,
                    const data::DataPlan& plan, Problems& problems) {
  if (tokenizer != nullptr) {
    const data::TextMaskOptions text = data::TextMaskOptions::make(rules.text, *tokenizer, problems);
    if (rules.objective.kind != Kind::kMultitask) warn_of_documents(text, plan);
  }
  if (rules.objective.kind == Kind::kMultitask && sequence_length > 0)
    data::check_pairs(plan, sequence_length, problems);
}

}  // namespace internal
}  // namespace espalier::families
