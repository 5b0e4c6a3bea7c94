#include "apps/eval/options.h"

#include "apps/options/device_option.h"
#include "apps/options/generate_options.h"
#include "apps/tokenizer/options.h"
#include "base/format.h"

namespace espalier {
namespace {

enum class SetChoice { kByTasks, kBloom2022, kMegatron, kLmEval04 };
enum class DetokenizerChoice { kByPath, kWikitext, kPennTreebank, kNone };
enum class LayoutChoice { kOfSet, kLmEval2022, kLmEval04 };

struct Choices {
  SetChoice set = SetChoice::kByTasks;
  DetokenizerChoice detokenizer = DetokenizerChoice::kByPath;
  LayoutChoice layout = LayoutChoice::kOfSet;
};

void add_task_rows(OptionTable& table, EvalOptions& options, Choices& choices) {
  table.group("tasks");
  table
      .add("--tasks", options.tasks,
           "tasks, separated by spaces or commas, each NAME or SET:NAME; all for every one of the set")
      .alias("--task")
      .alias("--task-list")
      .value_name("TASK");
  table.add_choice(
      "--task-set", choices.set,
      {{"infer", SetChoice::kByTasks},
       {"bloom-2022", SetChoice::kBloom2022},
       {"megatron", SetChoice::kMegatron},
       {"lm-eval-0.4", SetChoice::kLmEval04}},
      "whose prompts and scores to use for names without a set: BLOOM's 28 tasks as in lm_eval of 2022, WIKITEXT103 "
      "and LAMBADA of Megatron's tasks/main.py, or those of --task-files; by default from the name");
  table.add("--task-files", options.task_files, "folder of lm_eval 0.4's task files (lm_eval/tasks), or one file")
      .alias("--include-path")
      .value_name("DIR");
  table.add("--num-fewshot", options.num_fewshot, "examples before each question of lm-eval-0.4's tasks")
      .minimum(0)
      .maximum(1000);
  table
      .add("--max-gen-toks", options.max_gen_toks,
           "most tokens of a text that lm-eval-0.4's tasks have generated; their files say how many unless given")
      .minimum(1)
      .maximum(1'000'000);
  table.add("--data", options.data, "the folder of the tasks' files, the file of one task, or TASK=FILE")
      .alias("--valid-data")
      .value_name("PATH");
  table.add("--list-data", options.list_data, "show what file each task needs, with which fields");
  table.add("--limit", options.limit, "only the first N documents of each task").minimum(1);
}

void add_model_rows(OptionTable& table, EvalOptions& options) {
  table.group("model");
  table.add("--load", options.load, "run folder or step folder of the model that is asked").value_name("DIR");
  table.add("--ckpt-step", options.ckpt_step, "step of the run folder; the newest complete one unless given");
  table.add("--ema", options.ema, "ask with the moving average of the weights that train --ema has kept");
  table.add("--int8-weights", options.int8_weights,
            "ask with the layers' matrices in 8 bits: what that costs in quality");
  table.add("--int8-shift", options.int8_shift,
            "with --int8-weights: ask with the weights as they are saved too, and say by how much each value shifts");
  table.add("--stream-layers", options.stream_layers,
            "read each layer when a pass comes to it: for models that do not fit into memory");
  add_tensor_ranks(table, options.tensor_ranks);
  add_device(table, options.device);
  table.add("--num-threads", options.num_threads, "threads; the usable cores unless given").minimum(1);
  table
      .add("--requests", options.requests,
           "instead of tasks: score lines {\"context\", \"continuation\"}, and print {\"loglikelihood\", "
           "\"is_greedy\", \"tokens\"} for each")
      .value_name("FILE");
  add_neighbor_rows(table, options.neighbors);
}

void add_scoring_rows(OptionTable& table, EvalOptions& options) {
  table.group("scoring by another engine");
  table.add("--write-requests", options.write_requests, "write the requests of the tasks, one JSON object a line")
      .value_name("FILE");
  table
      .add("--read-results", options.read_results,
           "score these answers: lines with task, doc_id and index of a request, log_likelihood, is_greedy")
      .value_name("FILE");
}

void add_result_rows(OptionTable& table, EvalOptions& options, Choices& choices) {
  table.group("results");
  table.add("--results-path", options.results_path, "write the results as JSON")
      .alias("--output-path")
      .alias("--output")
      .value_name("FILE");
  table.add_choice("--results-layout", choices.layout,
                   {{"of-the-set", LayoutChoice::kOfSet},
                    {"lm-eval-2022", LayoutChoice::kLmEval2022},
                    {"lm-eval-0.4", LayoutChoice::kLmEval04}},
                   "of that file");
  table.add("--results-csv", options.results_csv, "write task, metric, value, error and version").value_name("FILE");
  table.add(
      "--log-samples", options.log_samples,
      "write each document with its requests and answers: PATH_samples_TASK.jsonl next to --results-path PATH.json");
  table.add("--overwrite", options.overwrite, "replace output files that espalier eval has not written");
  table
      .add("--bootstrap-iters", options.bootstrap_iters,
           "resamples for the standard error of f1 and perplexity; 0 leaves it out")
      .minimum(0)
      .maximum(10'000'000);
  table.add("--json", options.json, "print the results, or the list of --list-data, as JSON");
}

void add_tokenizer_rows(OptionTable& table, EvalOptions& options, Choices& choices) {
  table.group("ids (for WIKITEXT103 and LAMBADA, and to write them with other requests)");
  add_tokenizer_options(table, options.tokenizer);
  table.add("--seq-length", options.sequence_length, "longest sequence that the model accepts").minimum(1);
  table
      .add("--overlapping-eval", options.zero_shot.overlapping_eval,
           "ids between the starts of two windows of WIKITEXT103; --seq-length: no overlap")
      .minimum(1);
  table.add_choice("--detokenizer", choices.detokenizer,
                   {{"by-path", DetokenizerChoice::kByPath},
                    {"wikitext", DetokenizerChoice::kWikitext},
                    {"ptb", DetokenizerChoice::kPennTreebank},
                    {"none", DetokenizerChoice::kNone}},
                   "of WIKITEXT103; by default from what the path of the file contains");
  table.add("--strict-lambada", options.zero_shot.strict_lambada,
            "LAMBADA predicts the whole last word, not its last id");
}

void apply(const Choices& choices, EvalOptions& options) {
  switch (choices.set) {
    case SetChoice::kByTasks: break;
    case SetChoice::kBloom2022: options.task_set = "bloom-2022"; break;
    case SetChoice::kMegatron: options.task_set = "megatron"; break;
    case SetChoice::kLmEval04: options.task_set = "lm-eval-0.4"; break;
  }
  switch (choices.detokenizer) {
    case DetokenizerChoice::kByPath: break;
    case DetokenizerChoice::kWikitext: options.zero_shot.detokenizer = eval::Detokenizer::kWikitext; break;
    case DetokenizerChoice::kPennTreebank: options.zero_shot.detokenizer = eval::Detokenizer::kPennTreebank; break;
    case DetokenizerChoice::kNone: options.zero_shot.detokenizer = eval::Detokenizer::kNone; break;
  }
  switch (choices.layout) {
    case LayoutChoice::kOfSet: break;
    case LayoutChoice::kLmEval2022: options.layout = eval::ResultLayout::kLmEval2022; break;
    case LayoutChoice::kLmEval04: options.layout = eval::ResultLayout::kLmEval04; break;
  }
}

// `engine_is_unclear`: an option was perhaps meant to say who answers.
void check_use(const EvalOptions& options, bool engine_is_unclear, Problems& problems) {
  const bool writes = !options.write_requests.empty(), reads = !options.read_results.empty();
  if (options.list_data) {
    if (writes || reads) problems.add("--list-data only lists: leave out --write-requests and --read-results");
    return;
  }
  const bool asks = !options.load.empty();
  if (options.ckpt_step && !asks) problems.add("--ckpt-step needs --load");
  if (options.ema && !asks) problems.add("--ema needs --load");
  if (options.int8_weights && !asks) problems.add("--int8-weights needs --load");
  if (options.stream_layers && !asks) problems.add("--stream-layers needs --load");
  if (options.device != config::Device::kCpu && !asks) problems.add("--device needs --load");
  check_device(options.device, options.int8_weights, options.stream_layers, problems);
  if (options.tensor_ranks > 1 && !asks) problems.add("--tensor-model-parallel-size needs --load");
  if (options.tensor_ranks > 1 && options.int8_shift)
    problems.add("--int8-shift asks two models, and --tensor-model-parallel-size ", options.tensor_ranks,
                 " divides one over the processes: leave one out");
  if (options.int8_weights && options.stream_layers)
    problems.add("--int8-weights and --stream-layers: one at a time; 8 bits are made once, of layers that stay");
  if ((!options.neighbors.workdir.empty() || options.neighbors.without) && !asks)
    problems.add(options.neighbors.without ? "--retro-without-neighbors" : "--retro-workdir", " needs --load");
  check_neighbors(options.neighbors, problems);
  if (options.int8_shift && (!options.int8_weights || !options.requests.empty()))
    problems.add("--int8-shift says what 8 bits change in the values of tasks: it needs --int8-weights and --tasks");
  if (!options.requests.empty()) {
    if (!asks) problems.add("--requests needs --load: the model that scores them");
    if (!options.tasks.empty() || writes || reads)
      problems.add("--requests is scored by itself: leave out --tasks, --write-requests and --read-results");
    if (!options.results_path.empty() || !options.results_csv.empty() || options.log_samples)
      problems.add("--requests prints its answers on the standard output: leave out --results-path, --results-csv and ",
                   "--log-samples");
    return;
  }
  if (options.tasks.empty()) problems.add("--tasks is required; 'espalier eval --list-data' shows them");
  if (options.data.empty()) problems.add("--data is required: the folder of the tasks' files");
  if (asks + writes + reads > 1)
    problems.add("--load, --write-requests and --read-results: one at a time");
  else if (asks + writes + reads == 0 && !engine_is_unclear)
    problems.add(
        "--load DIR is required: the model to evaluate; or, for another engine, --write-requests FILE and then "
        "--read-results FILE");
  if (!reads && !asks && (!options.results_path.empty() || !options.results_csv.empty()))
    problems.add(options.results_path.empty() ? "--results-csv" : "--results-path",
                 ": there are results only with --load or --read-results");
  if (options.log_samples && options.results_path.empty())
    problems.add("--log-samples needs --results-path, next to which it writes");
  if (options.bootstrap_iters == 1)
    problems.add("--bootstrap-iters 1: a deviation needs two resamples; use 0 or at least 2");
}

}  // namespace

std::vector<std::string> task_words(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const std::string& word : words)
    for (const std::string& name : split(word, ','))
      if (!name.empty()) names.push_back(name);
  return names;
}

bool read_eval_options(const std::vector<std::string>& arguments, EvalOptions& options, Problems& problems) {
  Choices choices;
  OptionTable table("espalier eval",
                    "Evaluates a model on tasks; or writes the requests for another engine, and scores its answers.");
  add_task_rows(table, options, choices);
  add_model_rows(table, options);
  add_scoring_rows(table, options);
  add_result_rows(table, options, choices);
  add_tokenizer_rows(table, options, choices);
  table.stray_words_mean("--tasks");
  table.known_elsewhere({"--model", "--model-args", "--pretrained", "--checkpoint", "--ckpt", "--model-path"},
                        "--load; the answers of another engine come by --write-requests and --read-results");
  table.known_elsewhere({"--quantization", "--quantize", "--load-in-8bit", "--weight-bits", "--int8", "--weights"},
                        "--int8-weights");
  table.known_elsewhere({"--batch-size", "--max-batch-size"}, "requests are put together as memory allows");
  table.known_elsewhere({"--results", "--results-file"}, "--results-path");
  table.known_elsewhere({"--step", "--iteration"}, "--ckpt-step");
  table.known_elsewhere({"--offload", "--cpu-offload", "--disk-offload", "--mmap"}, "--stream-layers");
  if (!table.parse(arguments, problems)) return false;
  options.tasks = task_words(options.tasks);
  apply(choices, options);
  check_use(options, table.find("--load")->unclear(), problems);
  return true;
}

}  // namespace espalier
