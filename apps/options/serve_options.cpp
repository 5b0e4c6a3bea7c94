#include "apps/options/serve_options.h"

#include "apps/options/device_option.h"
#include "apps/options/generate_options.h"
#include "base/file.h"
#include "base/format.h"
#include "base/options.h"
#include "base/thread_pool.h"
#include "text/chat_template.h"

namespace espalier {
namespace {

void add_passage_options(OptionTable& table, PassageOptions& passages, std::string& memory) {
  table.group("passages beside the answers");
  table.add("--retrieval-index", passages.index, "index of espalier index embed, to search passages in")
      .alias("--embedding-path")
      .value_name("DIR");
  table.add("--retrieval-model", passages.encoder.ict_load, "the retriever that made it: run folder or step folder")
      .alias("--ict-load")
      .value_name("DIR");
  table
      .add("--retrieval-step", passages.encoder.ckpt_step, "step of its run folder; by default the newest complete one")
      .minimum(0);
  table.add("--evidence-data-path", passages.evidence, "the passages that it was made of, which are held in memory")
      .value_name("TSV");
  add_retriever_length(table, passages.encoder);
  add_search_memory(table, "--retrieval-memory", memory);
  table.add("--retrieval-exact", passages.probes.exact,
            "compare every vector, even where the index has a trained one (espalier index train)");
}

void check_passages(ServeOptions& options, const std::string& memory, Problems& problems) {
  PassageOptions& passages = options.passages;
  const std::pair<const char*, const std::string*> needed[] = {{"--retrieval-index", &passages.index},
                                                               {"--retrieval-model", &passages.encoder.ict_load},
                                                               {"--evidence-data-path", &passages.evidence}};
  std::vector<std::string> missing;
  for (const auto& [name, value] : needed)
    if (value->empty()) missing.push_back(name);
  if (!missing.empty() && missing.size() < std::size(needed))
    problems.add(join(missing, ", "), missing.size() == 1 ? " is" : " are",
                 " missing: passages are found with an index, the model that made it, and their texts");
  const int64_t threads = options.num_threads.value_or(num_usable_cores());
  resolve_search("--retrieval-memory", memory, threads, passages.search, problems);
}

void add_options(OptionTable& table, ServeOptions& options, std::string& search_memory) {
  table.group("model");
  table.add("--load", options.load, "run folder or step folder").value_name("DIR").required();
  table.add("--ckpt-step", options.ckpt_step, "step of the run folder; by default the newest complete one");
  table.add("--ema", options.ema, "the moving average of the weights that train --ema has kept");
  table
      .add("--beside", options.beside,
           "second model, to compare in the playground: run folder or step folder; its routes are below /beside/")
      .value_name("DIR");
  table.add("--beside-step", options.beside_step, "step of the second model's run folder; by default the newest");
  table.add("--served-model-name", options.served_model_name,
            "name of the model for clients; by default the folder's name");
  table
      .add("--chat-template", options.chat_template,
           "Jinja template of /v1/chat/completions; by default the tokenizer's own")
      .value_name("FILE");
  table.add("--int8-weights", options.int8_weights, "hold the layers' matrices in 8 bits, which takes less memory");
  table.add("--stream-layers", options.stream_layers,
            "read each layer when a pass comes to it: for models that do not fit into memory");
  table
      .add("--retro-without-neighbors", options.without_neighbors,
           "serve a Retro as the GPT with its weights: no neighbours are looked up here")
      .alias("--no-retrieval");
  add_tensor_ranks(table, options.tensor_ranks);
  add_device(table, options.device);
  table.add("--num-threads", options.num_threads, "threads; the usable cores unless given").minimum(1);
  table
      .add("--max-context", options.max_context,
           "most tokens of a prompt and its text; by default as many as the model has learned, or was trained with")
      .minimum(1);
  table.add("--kv-cache-mib", options.kv_cache_megabytes, "MiB for keys and values, at least one text's").minimum(1);
  table.group("address");
  table.add("--host", options.host, "address to listen on; 0.0.0.0 lets other machines in, without encryption");
  table.add("--port", options.port, "port to listen on; 0: any free one").minimum(0).maximum(65535);
  table
      .add("--api-key-file", options.api_key_file,
           "file with the key that clients send as 'Authorization: Bearer KEY'; by default none is required")
      .value_name("FILE");
  table.group("limits");
  table.add("--max-running", options.max_running, "texts that are generated at once").minimum(1).maximum(4096);
  table.add("--max-waiting", options.max_waiting, "texts that may wait; more get status 429").minimum(0);
  table.add("--max-prompt-tokens", options.max_prompt_tokens, "most tokens of a prompt").minimum(1);
  table.add("--max-body-mib", options.max_body_megabytes, "MiB of a request").minimum(1).maximum(1024);
  table.add("--max-connections", options.max_connections, "open connections; more are closed at once").minimum(1);
  table.add("--request-seconds", options.request_seconds, "seconds after which a request is cancelled").minimum(1);
  add_passage_options(table, options.passages, search_memory);
  table.known_elsewhere({"--model", "--model-path", "--checkpoint", "--ckpt"}, "--load");
  table.known_elsewhere({"--quantization", "--quantize", "--load-in-8bit", "--weight-bits", "--int8", "--weights"},
                        "--int8-weights");
  table.known_elsewhere({"--offload", "--cpu-offload", "--disk-offload", "--mmap"}, "--stream-layers");
  table.known_elsewhere({"--step", "--iteration"}, "--ckpt-step");
  table.known_elsewhere({"--tokenizer", "--tokenizer-type", "--tokenizer-name-or-path"},
                        "a checkpoint has its own tokenizer");
  table.known_elsewhere({"--ssl-certfile", "--ssl-keyfile", "--tls"},
                        "it speaks HTTP: TLS is for a proxy in front, such as nginx");
  table.known_elsewhere({"--api-key"}, "--api-key-file: a key on the command line is seen by everybody");
  table.known_elsewhere({"--max-num-seqs", "--parallel"}, "--max-running");
  table.known_elsewhere({"--max-model-len", "--ctx-size"}, "--max-context");
}

// Read here, so that what is wrong with it is reported with all the rest.
std::string template_of(const std::string& file, Problems& problems) {
  try {
    const std::string read = read_file(file);
    const text::ChatTemplate tried(read, file, *text::load_tokenizer({.type = "NullTokenizer", .vocab_size = 1}));
    return read;
  } catch (const UserError& error) {
    problems.add("--chat-template: ", error.what());
    return "";
  }
}

std::string key_of(const std::string& file, Problems& problems) {
  std::string key;
  try {
    key = read_file(file);
  } catch (const UserError& error) {
    problems.add("--api-key-file: ", error.what());
    return key;
  }
  const std::string blanks = " \t\r\n";
  key.erase(0, std::min(key.find_first_not_of(blanks), key.size()));
  key.erase(key.find_last_not_of(blanks) + 1);
  if (key.empty()) problems.add("--api-key-file ", file, " is empty; write the key into it");
  if (key.find_first_of(blanks) != std::string::npos)
    problems.add("--api-key-file ", file, " has more than one word; it holds the key and nothing else");
  return key;
}

}  // namespace

bool read_serve_options(const std::vector<std::string>& arguments, ServeOptions& options) {
  OptionTable table("espalier serve",
                    "Serves a trained model over HTTP: OpenAI's completions and chats, Megatron's PUT /api, the "
                    "tokenizer, and metrics for Prometheus. SIGTERM lets requests in progress finish.");
  std::string search_memory = "1GiB";
  add_options(table, options, search_memory);
  Problems problems;
  if (!table.parse(arguments, problems)) return false;
  if (const std::string why = why_too_many_threads(options.num_threads.value_or(1)); !why.empty())
    problems.add(table.origin("--num-threads"), why);
  check_passages(options, search_memory, problems);
  check_device(options.device, options.int8_weights, options.stream_layers, problems);
  if (options.int8_weights && options.stream_layers)
    problems.add("--int8-weights and --stream-layers: one at a time; 8 bits are made once, of layers that stay");
  if (!options.beside.empty() && options.tensor_ranks > 1)
    problems.add(table.origin("--tensor-model-parallel-size"),
                 " divides one model over the processes, and --beside is a ", "second one: leave one out");
  if (options.beside.empty() && options.beside_step) problems.add("--beside-step says nothing without --beside DIR");
  if (!options.api_key_file.empty()) options.api_key = key_of(options.api_key_file, problems);
  if (!options.chat_template.empty()) options.chat_template_text = template_of(options.chat_template, problems);
  problems.raise();
  return true;
}

}  // namespace espalier
