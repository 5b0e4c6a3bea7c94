#include "families/gpt/depth_recipe.h"

#include <algorithm>
#include <cmath>

#include "base/console.h"
#include "base/error.h"
#include "base/format.h"

namespace espalier::families {
namespace {

constexpr int64_t kWidthPerLayer = 64, kMostDepth = 256;
constexpr int64_t kVocabularyUnit = 128;     // the default of --make-vocab-size-divisible-by
constexpr int64_t kTokensPerParameter = 20;  // Hoffmann et al. 2022
constexpr int64_t kMostEpochs = 4;           // Muennighoff et al. 2023
constexpr int64_t kLeastSteps = 200;
constexpr int64_t kTokensAtOnce = 4096;
constexpr double kDeepSeekLeast = 1e17, kDeepSeekMost = 2e19;  // FLOPs of the runs that its rules were fitted to

int64_t padded(int64_t vocabulary) { return (vocabulary + kVocabularyUnit - 1) / kVocabularyUnit * kVocabularyUnit; }

int64_t default_seq_length(int64_t depth) { return depth <= 4 ? 256 : depth <= 8 ? 512 : depth <= 16 ? 1024 : 2048; }

// Weights and biases of the layers, their norms, the last norm and that of the embedding; the embedding is the output
// layer, too.
int64_t count_parameters(int64_t depth, int64_t width, int64_t vocabulary) {
  return depth * (12 * width * width + 13 * width) + 4 * width + padded(vocabulary) * width;
}

// DeepSeek LLM's equation 2, M = 72 n d^2 + 12 n d l, which leaves out the embedding.
double flops_per_token(int64_t depth, int64_t width, int64_t seq_length) {
  return static_cast<double>(depth) * static_cast<double>(width) *
         (72.0 * static_cast<double>(width) + 12.0 * static_cast<double>(seq_length));
}

int64_t nearest_power_of_two(double value) { return value <= 1 ? 1 : int64_t{1} << std::llround(std::log2(value)); }

// 0.0036127 -> "3.6e-3"
std::string two_digits(double value) {
  std::string text = format_printf("%.1e", value);
  const size_t zero = text.find("e-0");
  if (zero != std::string::npos) text.erase(zero + 2, 1);
  return text;
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char one : text) result += one == '"' || one == '\\' ? concat("\\", one) : std::string(1, one);
  return result + "\"";
}

std::string million(int64_t number) {
  return number < 10'000'000 ? format_count(number) : concat(format_count((number + 500'000) / 1'000'000), " million");
}

class Maker {
 public:
  explicit Maker(const DepthRequest& request)
      : request_(request),
        width_(kWidthPerLayer * request.depth),
        seq_length_(request.seq_length.value_or(default_seq_length(request.depth))) {}

  DepthRecipe make() {
    check();
    recipe_.parameters = count_parameters(request_.depth, width_, request_.vocabulary);
    choose_tokens();
    choose_batch();
    add_network();
    add_regularization();
    add_training();
    add_learning_rate();
    add_rest();
    add_data();
    return std::move(recipe_);
  }

 private:
  void check() const {
    Problems problems;
    if (request_.depth < 1 || request_.depth > kMostDepth)
      problems.add("--depth ", request_.depth, " is not from 1 to ", kMostDepth, ", the number of layers");
    if (request_.vocabulary < 1) problems.add("--vocab-size ", request_.vocabulary, " is not a size of a vocabulary");
    if (seq_length_ < 1) problems.add("--seq-length ", seq_length_, " is not a length");
    if (request_.tokens && *request_.tokens < seq_length_)
      problems.add("--tokens ", *request_.tokens, " are less than one sample of ", seq_length_, " tokens");
    problems.raise();
  }

  void add(const char* table, const char* key, std::string value, std::string reason) {
    recipe_.settings.push_back({table, key, std::move(value), std::move(reason)});
  }
  template <class... Parts>
  void note(const Parts&... parts) {
    recipe_.notes.push_back(concat(parts...));
  }

  void choose_tokens() {
    int64_t available = 0;
    for (const DepthRequest::Corpus& corpus : request_.corpora) available += corpus.tokens;
    const int64_t wanted = kTokensPerParameter * recipe_.parameters;
    recipe_.tokens = request_.tokens.value_or(wanted);
    tokens_reason_ = request_.tokens ? concat("--tokens ", format_count(*request_.tokens), " says so")
                                     : concat("20 tokens for each of ", million(recipe_.parameters),
                                              " parameters, which is compute-optimal (Hoffmann et al. 2022)");
    if (request_.corpora.empty()) return;
    if (!request_.tokens && wanted > kMostEpochs * available) {
      recipe_.tokens = std::max(seq_length_, kMostEpochs * available);
      tokens_reason_ = concat("four epochs of the ", format_count(available),
                              " available tokens: more repetition is worth little (Muennighoff et al. 2023)");
      note("A model of this depth needs ", million(wanted), " tokens and gets ", million(recipe_.tokens),
           ": a smaller depth would use this text better, or more text this depth.");
    }
    recipe_.epochs = static_cast<double>(recipe_.tokens) / static_cast<double>(std::max<int64_t>(1, available));
    if (*recipe_.epochs > kMostEpochs)
      note("The text is read ", format_printf("%.1f", *recipe_.epochs),
           " times; from about four times on, repetition is worth little (Muennighoff et al. 2023).");
  }

  void choose_batch() {
    recipe_.flops = flops_per_token(request_.depth, width_, seq_length_) * static_cast<double>(recipe_.tokens);
    const double wanted = 0.2920 * std::pow(recipe_.flops, 0.3271);  // tokens
    const int64_t most = std::max<int64_t>(1, recipe_.tokens / kLeastSteps / seq_length_);
    const int64_t by_rule = nearest_power_of_two(wanted / static_cast<double>(seq_length_));
    int64_t samples = by_rule;
    while (samples > most) samples /= 2;
    samples = std::max<int64_t>(1, samples);
    batch_reason_ = concat(format_count(samples * seq_length_), " tokens. ");
    batch_reason_ += samples < by_rule ? concat("The rule asks for ", format_count(by_rule * seq_length_),
                                                ", with which there would be less than ", kLeastSteps, " steps")
                                       : concat("0.2920 C^0.3271 = ", format_count(std::llround(wanted)),
                                                " of C = ", format_printf("%.2g", recipe_.flops),
                                                " FLOPs (Bi et al. 2024), as a power of two");
    global_batch_ = samples;
    recipe_.batch_tokens = samples * seq_length_;
    recipe_.steps = std::max<int64_t>(
        1, std::llround(static_cast<double>(recipe_.tokens) / static_cast<double>(recipe_.batch_tokens)));
    if (recipe_.flops < kDeepSeekLeast || recipe_.flops > kDeepSeekMost)
      note("The rules for batch and learning rate were fitted to runs of 1e17 to 2e19 FLOPs; this one has ",
           format_printf("%.2g", recipe_.flops), ".");
  }

  void add_network() {
    add("network_size", "num_layers", std::to_string(request_.depth), "--depth");
    add("network_size", "hidden_size", std::to_string(width_), "64 per layer, so that depth and width grow together");
    add("network_size", "num_attention_heads", std::to_string(request_.depth),
        "heads of 64: the size that attention kernels are made for and that BLOOM's small models had");
    add("network_size", "max_position_embeddings", std::to_string(seq_length_), "as long as the samples");
    add("network_size", "position_embedding_type", "\"alibi\"",
        "as BLOOM: nothing is learned for positions, and texts may be longer than the samples were");
    add("network_size", "embed_layernorm", "true", "as BLOOM: steadier at high learning rates in bf16");
  }

  void add_regularization() {
    add("regularization", "hidden_dropout", "0.0",
        "text that is read a few times is not memorized, and dropout would only slow learning down");
    add("regularization", "attention_dropout", "0.0", "the same");
    add("regularization", "weight_decay", "0.1", "as GPT-3, BLOOM and Llama");
    add("regularization", "clip_grad", "1.0", "the same");
    add("regularization", "adam_beta2", "0.95", "the same: a second moment that forgets sooner keeps spikes short");
  }

  void add_training() {
    const int64_t micro = std::min(
        global_batch_, std::max<int64_t>(1, nearest_power_of_two(static_cast<double>(kTokensAtOnce / seq_length_))));
    add("training", "micro_batch_size", std::to_string(micro),
        concat(
            format_count(micro * seq_length_),
            " tokens at once fill the matrix products of a few cores; more takes memory. On GPUs see `espalier plan`"));
    add("training", "global_batch_size", std::to_string(global_batch_), batch_reason_);
    add("training", "train_iters", std::to_string(recipe_.steps), tokens_reason_);
  }

  void add_learning_rate() {
    // Below the runs that the rule was fitted to it goes on rising, to rates at which small models learn little.
    const double rate = 0.3118 * std::pow(std::max(recipe_.flops, kDeepSeekLeast), -0.1250);
    add("learning_rate", "lr", two_digits(rate),
        recipe_.flops < kDeepSeekLeast
            ? "0.3118 C^-0.1250 of C = 1e17 FLOPs (Bi et al. 2024): the rule was fitted from there on, and higher "
              "rates "
              "make small models worse"
            : concat("0.3118 C^-0.1250 of C = ", format_printf("%.2g", recipe_.flops), " FLOPs (Bi et al. 2024)"));
    add("learning_rate", "min_lr", two_digits(rate / 10), "a tenth, as BLOOM and Llama");
    add("learning_rate", "lr_decay_style", "\"cosine\"", "over all of the run");
    add("learning_rate", "lr_warmup_fraction", "0.05", "short runs need a larger share than BLOOM's 0.1 %");
  }

  void add_rest() {
    const int64_t interval = std::max<int64_t>(1, recipe_.steps / 20);
    add("checkpointing", "save_interval", std::to_string(interval), "twenty checkpoints");
    add("mixed_precision", "bf16", "true", "half the memory traffic, with fp32 sums and fp32 master weights");
    add("validation", "eval_interval", std::to_string(interval), "with each checkpoint");
    add("validation", "eval_iters", "4", "enough to see a curve");
    add("logging", "log_interval", "10", "");
  }

  void add_data() {
    add("data", "seq_length", std::to_string(seq_length_),
        request_.seq_length ? "--seq-length" : "longer with depth: small models gain little from distant tokens");
    if (!request_.corpora.empty()) {
      int64_t all = 0;
      std::string value;
      for (const DepthRequest::Corpus& corpus : request_.corpora) all += corpus.tokens;
      for (const DepthRequest::Corpus& corpus : request_.corpora) {
        const double share = static_cast<double>(corpus.tokens) / static_cast<double>(std::max<int64_t>(1, all));
        const std::string weight = request_.corpora.size() == 1 ? "" : format_printf("%.4f, ", share);
        value += concat(value.empty() ? "" : ", ", weight, quoted(corpus.prefix));
      }
      add("data", "data_path", concat("[", value, "]"), "each text as often as it occurs");
      add("data", "split", "\"98,2,0\"", "two percent held out, for which evaluations report bits per byte");
    }
    if (request_.tokenizer.empty()) return;
    add("data", "tokenizer_type", "\"PretrainedFromHF\"", "a tokenizer.json");
    add("data", "tokenizer_name_or_path", quoted(request_.tokenizer), "");
  }

  const DepthRequest& request_;
  const int64_t width_, seq_length_;
  int64_t global_batch_ = 1;
  std::string tokens_reason_, batch_reason_;
  DepthRecipe recipe_;
};

// `text` as comment lines.
std::string comment(const std::string& text) {
  constexpr size_t kWidth = 100;
  std::string lines;
  for (const std::string& line : split(wrap_text(text, 0, 0, kWidth), '\n')) lines += concat("# ", line, "\n");
  return lines;
}

}  // namespace

DepthRecipe make_depth_recipe(const DepthRequest& request) { return Maker(request).make(); }

std::string to_toml(const DepthRecipe& recipe, const DepthRequest& request) {
  std::string text =
      comment(concat("A GPT ", request.depth, " layers deep, made by `espalier recipe --depth ", request.depth,
                     "`: ", million(recipe.parameters), " parameters, ", million(recipe.tokens), " tokens in ",
                     format_count(recipe.steps), " steps, ", format_printf("%.2g", recipe.flops), " FLOPs."));
  for (const std::string& note : recipe.notes) text += comment(note);
  std::string missing;
  if (request.corpora.empty()) missing += " --data-path PREFIX";
  if (request.tokenizer.empty())
    missing += " --tokenizer-type PretrainedFromHF --tokenizer-name-or-path tokenizer.json";
  text += concat("#\n#   espalier train gpt --recipe THIS.toml", missing, " --save RUN --load RUN\n");
  std::string table;
  for (const DepthSetting& setting : recipe.settings) {
    if (setting.table != table) text += concat("\n[", setting.table, "]\n");
    table = setting.table;
    if (!setting.reason.empty()) text += comment(setting.reason);
    text += concat(setting.key, " = ", setting.value, "\n");
  }
  return text;
}

}  // namespace espalier::families
