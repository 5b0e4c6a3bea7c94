// The rows of `espalier train` that say which samples are read.
#include <tuple>
#include <utility>

#include "config/internal/rows.h"

namespace espalier::config::internal {

void add_validation(OptionTable& table, DataConfig& data) {
  table.group("validation");
  table.add("--eval-iters", data.eval_iters, "batches of one evaluation; 0: none")
      .minimum(0)
      .common()
      .on_resume(ResumeRule::kFree);
  table.add("--eval-interval", data.eval_interval, "steps between evaluations")
      .minimum(1)
      .common()
      .on_resume(ResumeRule::kFree);
  table.add_truth("--eval-only", data.eval_only, "evaluate and exit; any text means yes, as in Megatron")
      .value_name("true")
      .on_resume(ResumeRule::kFree);
  table
      .add("--eval-ema", data.eval_ema,
           "evaluate the moving average of --ema instead of the weights, also with --eval-only and --eval-tasks")
      .on_resume(ResumeRule::kFree);
  table
      .add("--eval-tasks", data.eval_tasks,
           "tasks of espalier eval (NAME or SET:NAME) on which each saved checkpoint is evaluated, alongside training")
      .value_name("TASK")
      .on_resume(ResumeRule::kFree);
  table.add("--eval-tasks-data", data.eval_tasks_data, "their files, as --data of espalier eval")
      .value_name("PATH")
      .on_resume(ResumeRule::kFree);
  table.add("--eval-tasks-files", data.eval_tasks_files, "task files of lm-eval-0.4, as --task-files of espalier eval")
      .value_name("DIR")
      .on_resume(ResumeRule::kFree);
  table.add("--eval-tasks-minutes", data.eval_tasks_minutes, "minutes after which such an evaluation is aborted")
      .minimum(1)
      .on_resume(ResumeRule::kFree);
  table.add("--eval-tasks-threads", data.eval_tasks_threads, "threads of such an evaluation, at the lowest priority")
      .minimum(1)
      .on_resume(ResumeRule::kFree);
  table.add("--skip-train", data.eval_only, "the same as a flag").on_resume(ResumeRule::kFree);
}

void add_data(OptionTable& table, RunConfig& config) {
  DataConfig& data = config.data;
  table.group("data and dataloader");
  table.add("--data-path", data.data_path, "a prefix of .bin/.idx, or WEIGHT PREFIX WEIGHT PREFIX ...")
      .value_name("WORD")
      .common();
  table
      .add("--data-file-list", data.data_file_list,
           "lines WEIGHT PREFIX CORPUS, instead of --data-path; samples of all are mixed by weight")
      .value_name("FILE");
  table.add("--split", data.split, "shares of training, validation and test of --data-path or --data-file-list")
      .default_text("969, 30, 1")
      .common();
  for (const auto& [set, texts, file] :
       {std::tuple("train", &data.train_weighted_split_paths, &data.train_weighted_split_paths_path),
        std::tuple("valid", &data.valid_weighted_split_paths, &data.valid_weighted_split_paths_path),
        std::tuple("test", &data.test_weighted_split_paths, &data.test_weighted_split_paths_path)}) {
    const std::string name = std::string("--") + set + "-weighted-split-paths";
    table.add(name, *texts, "groups \"NAME: WEIGHT BEGIN:END PREFIX, ...\", instead of --data-path")
        .value_name("GROUP");
    table.add(name + "-path", *file, "the same from a file with one line of quoted groups").value_name("FILE");
  }
  for (const auto& [set, words] : {std::pair("train", &data.train_data_path), std::pair("valid", &data.valid_data_path),
                                   std::pair("test", &data.test_data_path)})
    table
        .add(std::string("--") + set + "-data-path", *words,
             "files of this set only, read completely, in the form of --data-path and instead of it")
        .value_name("WORD");
  table
      .add("--data-stages", data.data_stages,
           "\"START: WEIGHT PREFIX, WEIGHT PREFIX\" each: what the training set is mixed from, from step START on (or "
           "START samples, START tokens); sources that are kept go on where they are")
      .value_name("START: BLEND")
      .on_resume(ResumeRule::kFree);  // its past is compared by data/order_fingerprint.h
  table.add_choice("--packing", data.packing, {{"none", data::Packing::kNone}, {"best-fit", data::Packing::kBestFit}},
                   "none: samples are cut from a row of documents, as Megatron's; best-fit: documents that fit into a "
                   "sample stay whole");
  table.add("--data-cache-path", data.cache_path, "keep index arrays in this folder")
      .value_name("DIR")
      .on_resume(ResumeRule::kFree);
  table
      .add("--data-impl", data.data_impl,
           "required format of the token files; lazy and cached are the old TNTIDX format")
      .choices({"infer", "mmap", "lazy", "cached"})
      .on_resume(ResumeRule::kFree);
  table.add("--seq-length", data.seq_length, "tokens of one sample").minimum(1).maximum(1e9).common();
  table
      .add("--seq-length-stages", data.seq_length_stages,
           "\"START: LENGTH\" each: from step START on (or START samples, START tokens) a sample holds sequences of "
           "LENGTH tokens, which divides --seq-length; tokens of a batch stay the same")
      .value_name("START: LENGTH")
      .on_resume(ResumeRule::kFree);  // likewise
  table
      .add_choice("--seq-length-stages-by", data.seq_length_stages_by,
                  {{"dividing", LengthBy::kDividing}, {"truncating", LengthBy::kTruncating}},
                  "dividing: a sample holds several sequences of that length; truncating: it is cut off after it, as "
                  "by DeepSpeed's curriculum_learning, and the tokens of a batch grow")
      .on_resume(ResumeRule::kFree);
  table
      .add("--encoder-seq-length", data.encoder_seq_length,
           "another name for --seq-length; if both are given they must be equal")
      .minimum(1)
      .maximum(1e9);
  table.add("--reset-position-ids", data.reset_position_ids, "positions restart at each document");
  table.add("--reset-attention-mask", data.reset_attention_mask, "attention does not cross documents");
  table.add("--eod-mask-loss", data.eod_mask_loss, "no loss where the input is the end of a document");
  table.add_choice("--sample-order", data.sample_order,
                   {{"megatron", data::OrderKind::kMegatron}, {"implicit", data::OrderKind::kImplicit}},
                   "megatron: its shuffled index arrays, built at the start; implicit: a keyed permutation that needs "
                   "no time or memory, for corpora of any size");
  table.add_choice("--dataloader-type", data.dataloader_type,
                   {{"single", DataloaderType::kSingle}, {"cyclic", DataloaderType::kCyclic}},
                   "single reads in order; cyclic reshuffles the samples every epoch");
  table
      .add("--cyclic-layout", data.cyclic_layout,
           "MICRO_BATCH DATA_PARALLEL: read the cyclic order that Megatron has with these sizes, in any layout")
      .default_text("1 1")
      .on_resume(ResumeRule::kFree);
  table
      .add("--allow-other-tokenizer", data.allow_other_tokenizer,
           "accept data made with another tokenizer, and ids up to the rows of the model")
      .on_resume(ResumeRule::kFree);
  add_tokenizer(table, config.tokenizer);
  config.family->add_options(table, config.model, FamilyRows::kData);
  add_data_inert(table);
}

}  // namespace espalier::config::internal
