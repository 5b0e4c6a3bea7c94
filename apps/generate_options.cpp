#include "generate_options.h"

#include "base/thread_pool.h"

namespace espalier {
namespace {

void add_options(OptionTable& table, GenerateOptions& options) {
  table.group("model");
  table.add("--load", options.load, "run folder or step folder").value_name("DIR").required();
  table.add("--ckpt-step", options.ckpt_step, "step of the run folder; by default the newest complete one");
  table.add("--ema", options.ema, "the moving average of the weights that train --ema has kept");
  table.add("--num-threads", options.num_threads, "threads; by default the usable cores").minimum(1);
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
  table.known_elsewhere({"--do-sample"}, "it samples unless --greedy is given");
  table.known_elsewhere({"--prompt-file", "--file", "--sample-input-file", "--input-file"},
                        "texts of a file are read from standard input, one a line");
  table.known_elsewhere({"--num-samples", "--num-return-sequences"}, "give a text to --prompt as often");
}

}  // namespace

bool read_generate_options(const std::vector<std::string>& arguments, GenerateOptions& options) {
  OptionTable table("espalier generate",
                    "Continues texts with a trained model, or fills in the [MASK] of texts with a BERT.");
  add_options(table, options);
  Problems problems;
  if (!table.parse(arguments, problems)) return false;
  // Below this exp(logit / temperature) leaves the range of numbers.
  if (options.temperature > 0 && options.temperature < 1e-6)
    problems.add(table.origin("--temperature"), " is too small; use at least 1e-6, or 0 for the most likely token");
  if (const std::string why = why_too_many_threads(options.num_threads.value_or(1)); !why.empty())
    problems.add(table.origin("--num-threads"), why);
  problems.raise();
  return true;
}

}  // namespace espalier
