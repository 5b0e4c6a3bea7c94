#include "apps/options/generate_options.h"

#include "apps/options/device_option.h"
#include "base/output_checks.h"
#include "base/thread_pool.h"

namespace espalier {

void add_tensor_ranks(OptionTable& table, int64_t& tensor_ranks) {
  table
      .add("--tensor-model-parallel-size", tensor_ranks,
           "processes that hold a part of each layer; espalier launch starts them")
      .minimum(1)
      .maximum(1024);
  table.known_elsewhere({"--tp", "--tp-size", "--tensor-parallel", "--tensor-parallel-size"},
                        "--tensor-model-parallel-size");
}

void add_generate_rows(OptionTable& table, GenerateOptions& options) {
  table.group("model");
  table.add("--load", options.load, "run folder or step folder").value_name("DIR").required();
  table.add("--ckpt-step", options.ckpt_step, "step of the run folder; by default the newest complete one");
  table.add("--ema", options.ema, "the moving average of the weights that train --ema has kept");
  table.add("--int8-weights", options.int8_weights, "hold the layers' matrices in 8 bits, which takes less memory");
  table.add("--stream-layers", options.stream_layers,
            "read each layer when a pass comes to it: for models that do not fit into memory");
  add_tensor_ranks(table, options.tensor_ranks);
  add_device(table, options.device);
  table.add("--num-threads", options.num_threads, "threads; the usable cores unless given").minimum(1);
  table.group("text");
  table.add("--prompt", options.prompts,
            "texts to continue, or with [MASK] to fill in; without it every line of standard input is one");
  table
      .add("--tokens-to-generate", options.tokens_to_generate,
           "new tokens for each prompt; a BERT gives one for each [MASK]")
      .minimum(1)
      .maximum(1'000'000'000)
      .alias("--out-seq-length");
  table.add_negative("--no-stop-at-eod", options.stop_at_eod, "continue after the end-of-document token");
  table.add("--json", options.json, "one JSON object a prompt: prompt, text, prompt_ids, generated_ids, logprobs");
  add_neighbor_rows(table, options.neighbors);
  table.group("many texts, into a file");
  table
      .add("--sample-input-file", options.input_file,
           "continue the texts of this file: JSONL with prompt.text, prompt or text, else one a line")
      .value_name("FILE");
  table
      .add("--sample-output-file", options.output_file,
           "where to: an object a text with text, all_text, prompt, id, finished")
      .value_name("FILE")
      .default_text("FILE.out");
  table.add("--genfile", options.genfile, "write --num-samples texts that begin with nothing into this file")
      .value_name("FILE");
  table.add("--num-samples", options.num_samples, "how many texts; of a file all unless given").minimum(1);
  table.add("--samples-per-prompt", options.samples_per_prompt, "texts for each prompt of the file, each drawn anew")
      .minimum(1)
      .maximum(1'000'000);
  table.add("--batch-size", options.batch_size, "texts that are written at once; what they say does not depend on it")
      .alias("--micro-batch-size")
      .minimum(1)
      .maximum(4096);
  table.add("--overwrite", options.overwrite, "replace the file; without it, a file that was begun is continued");
  table.group("sampling");
  table.add("--temperature", options.temperature, "divides the logits; 0 is --greedy").minimum(0).maximum(100);
  table.add("--top-k", options.top_k, "only the K most likely tokens; 0: all").value_name("K").minimum(0);
  table
      .add("--top-p", options.top_p,
           "sample from the most likely tokens that together reach probability P; 0: from all")
      .minimum(0)
      .maximum(1);
  table.add("--greedy", options.greedy, "always take the most likely token");
  table.add("--seed", options.seed, "of the draws; the same seed gives the same texts")
      .minimum(0)
      .alias("--random-seed");
  table.stray_words_mean("--prompt");
  table.known_elsewhere({"--model", "--model-path", "--model-name-or-path", "--checkpoint", "--ckpt", "--model-dir"},
                        "--load");
  table.known_elsewhere(
      {"--max-new-tokens", "--max-tokens", "--max-length", "--max-len", "--n-predict", "--num-tokens"},
      "--tokens-to-generate");
  table.known_elsewhere({"--input", "--text", "--prompts", "--start"}, "--prompt");
  table.known_elsewhere({"--quantization", "--quantize", "--load-in-8bit", "--weight-bits", "--int8", "--weights"},
                        "--int8-weights");
  table.known_elsewhere({"--offload", "--cpu-offload", "--disk-offload", "--mmap"}, "--stream-layers");
  table.known_elsewhere({"--step", "--iteration"}, "--ckpt-step");
  table.known_elsewhere(
      {"--tokenizer", "--tokenizer-type", "--tokenizer-name-or-path", "--tokenizer-model", "--vocab-file"},
      "a checkpoint has its own tokenizer");
  table.known_elsewhere({"--do-sample"}, "it samples unless --greedy is given");
  table.known_elsewhere({"--prompt-file", "--file", "--input-file"}, "--sample-input-file");
  table.known_elsewhere({"--output", "--output-file"}, "--sample-output-file");
  table.known_elsewhere({"--num-return-sequences"}, "--samples-per-prompt");
  table.known_elsewhere({"--max-running", "--max-num-seqs", "--parallel"}, "--batch-size");
}

namespace {

void check_files(const OptionTable& table, const GenerateOptions& options, Problems& problems) {
  if (options.int8_weights && options.stream_layers)
    problems.add("--int8-weights and --stream-layers: one at a time; 8 bits are made once, of layers that stay");
  const auto given = [&](const char* name) { return table.find(name)->given(); };
  if (!options.input_file.empty() && !options.genfile.empty())
    problems.add("--genfile is for texts that begin with nothing; of --sample-input-file use --sample-output-file");
  else if (!options.genfile.empty() && !options.num_samples)
    problems.add("--genfile ", options.genfile, " needs --num-samples: how many texts");
  if (options.input_file.empty()) {
    for (const char* name : {"--sample-output-file", "--samples-per-prompt"})
      if (given(name)) problems.add(table.origin(name), " belongs to --sample-input-file, which is not given");
    if (options.num_samples && options.genfile.empty())
      problems.add("--num-samples ", *options.num_samples, " needs --genfile FILE, or --sample-input-file FILE");
  }
  if (is_same_file(options.input_file, options.output_file))
    problems.add("--sample-output-file ", options.output_file, " is the file of --sample-input-file");
  if (options.writes_file()) {
    for (const char* name : {"--prompt", "--json"})
      if (given(name))
        problems.add(name, " and a file of many texts exclude each other; the file has an object a text");
  } else {
    for (const char* name : {"--batch-size", "--overwrite"})
      if (given(name)) problems.add(table.origin(name), " belongs to --sample-input-file and --genfile");
  }
}

}  // namespace

bool read_generate_options(const std::vector<std::string>& arguments, GenerateOptions& options) {
  OptionTable table("espalier generate",
                    "Continues texts with a trained model, or fills in the [MASK] of texts with a BERT.");
  add_generate_rows(table, options);
  Problems problems;
  if (!table.parse(arguments, problems)) return false;
  // Below this exp(logit / temperature) leaves the range of numbers.
  if (options.temperature > 0 && options.temperature < 1e-6)
    problems.add(table.origin("--temperature"), " is too small; use at least 1e-6, or 0 for the most likely token");
  if (const std::string why = why_too_many_threads(options.num_threads.value_or(1)); !why.empty())
    problems.add(table.origin("--num-threads"), why);
  check_device(options.device, options.int8_weights, options.stream_layers, problems);
  check_neighbors(options.neighbors, problems);
  check_files(table, options, problems);
  problems.raise();
  if (options.output_file.empty()) options.output_file = options.input_file + ".out";
  return true;
}

}  // namespace espalier
