// How far inference is from what the machine could do: a random GPT-2 124M, its passes against reading the same bytes
// and against the machine's rate of products.
//
//   engine_bench [--threads N] [--type bf16|fp32|int8] [--context N] [--layers N] [--only 1|16|512|2000] [--turns N]
//
// int8: the matrices of the layers in 8 bits (generate --int8-weights), all else in bf16. --only: streams, or the
// prompt of that length, --turns times (for a profiler).
//
// Prints medians of alternating turns: ms a token at 1 and 16 streams with the share of read bandwidth that the bytes
// of weights, keys and values take; prompts of 512 and 2,000 tokens in pieces of 512 with the share of the rate that
// training's product of the largest layer has.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "dist/grid.h"
#include "infer/engine/decoder_model.h"
#include "infer/load_model.h"
#include "kernels/int8_weights.h"
#include "kernels/matmul.h"
#include "kernels/row_product.h"
#include "models/gpt/model.h"
#include "tensor/cpu_allocator.h"
#include "tensor/param_set.h"

namespace {

using namespace espalier;

constexpr int64_t kPageTokens = 64, kPiece = 512;

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median_seconds(int turns, const std::function<void()>& work) {
  std::vector<double> times;
  work();
  for (int turn = 0; turn < turns; ++turn) {
    const double start = now();
    work();
    times.push_back(now() - start);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

families::GptConfig gpt2(int64_t layers) {
  families::GptConfig config;
  config.num_layers = layers;
  config.hidden_size = 768;
  config.ffn_hidden_size = 3072;
  config.num_attention_heads = 12;
  config.kv_channels = 64;
  config.max_position_embeddings = 4096;
  config.vocab_size = 50257;
  config.padded_vocab_size = 50304;
  config.hidden_dropout = config.attention_dropout = 0;
  return config;
}

// Bytes a second that all threads together read.
double read_rate() {
  const at::Tensor words = at::ones({int64_t{1} << 26}, at::kLong);  // 512 MiB
  const auto* const data = words.const_data_ptr<int64_t>();
  const double seconds = median_seconds(5, [&] {
    at::parallel_for(0, words.numel(), 1, [&](int64_t begin, int64_t end) {
      volatile int64_t sum = std::accumulate(data + begin, data + end, int64_t{0});
      (void)sum;
    });
  });
  return static_cast<double>(words.nbytes()) / seconds;
}

// Products of a prompt with the largest layer, in floating-point operations a second.
double rate_of(at::ScalarType type, bool rows) {
  const at::Tensor x = at::randn({kPiece, 768}).to(type), weight = at::randn({3072, 768}).to(type);
  const double seconds = median_seconds(
      20, [&] { rows ? kernels::row_product(x, weight, {}, type) : kernels::matmul_forward(x, weight, {}); });
  return 2.0 * kPiece * 768 * 3072 / seconds;
}

class Streams {
 public:
  Streams(infer::DecoderModel& model, int64_t count, int64_t pages_of_each) : model_(model), ids_(kPiece, 17) {
    for (int64_t i = 0; i < count; ++i) {
      std::vector<int32_t> pages(static_cast<size_t>(pages_of_each));
      std::iota(pages.begin(), pages.end(), static_cast<int32_t>(i * pages_of_each));
      pages_.push_back(pages);
    }
    logits_.resize(static_cast<size_t>(count * model.shape().vocab_size));
  }
  // One pass of `tokens` tokens of each stream from `position` on.
  void pass(int64_t tokens, int64_t position) {
    std::vector<infer::TokenRun> runs;
    for (const auto& pages : pages_)
      runs.push_back({.ids = std::span(ids_).first(static_cast<size_t>(tokens)),
                      .first_position = position,
                      .pages = pages,
                      .num_logits = 1});
    model_.forward(runs, logits_.data());
  }

 private:
  infer::DecoderModel& model_;
  std::vector<int32_t> ids_;
  std::vector<std::vector<int32_t>> pages_;
  std::vector<float> logits_;
};

double bytes_of(tensor::ParamSet& params) {
  double bytes = 0;
  for (const tensor::Param& param : params.params()) bytes += static_cast<double>(param.value.nbytes());
  return bytes;
}

struct Arguments {
  std::string type = "bf16";
  int64_t threads = 0, context = 512, layers = 12, only = 0, turns = 0;
};

void measure(const Arguments& arguments) {
  const bool int8 = arguments.type == "int8";
  const at::ScalarType type = arguments.type == "fp32" ? at::kFloat : at::kBFloat16;
  const int64_t context = arguments.context, layers = arguments.layers;
  const auto is_wanted = [&](int64_t what) { return arguments.only == 0 || arguments.only == what; };
  const auto turns_or = [&](int64_t otherwise) {
    return static_cast<int>(arguments.turns == 0 ? otherwise : arguments.turns);
  };
  const families::GptConfig config = gpt2(layers);
  tensor::ParamSet params(families::gpt_params(config), {}, type, /*with_grad=*/false);
  params.initialize(1, [](tensor::Param&, const at::Tensor&) {});
  if (int8)
    for (tensor::Param& param : params.params())
      if (infer::is_matrix_of_a_layer(*param.spec)) param.value = kernels::to_int8_rows(param.value);
  const models::GptModel gpt(nn::LayerBuilder{params, dist::single_process()}, config, {});
  infer::DecoderModel model(gpt, {type}, {.page_tokens = kPageTokens, .num_pages = 16 * 64, .max_positions = 0});
  const double weight_bytes = bytes_of(params), products = 2 * (12.0 * 768 * 768 * static_cast<double>(layers)),
               bytes_of_token =
                   static_cast<double>(infer::page_bytes(gpt.decoder_shape(), {type}, kPageTokens)) / kPageTokens;
  const double bandwidth = read_rate(), rate = rate_of(type, false), row_rate = rate_of(type, true);
  std::printf("%s, %s, %d threads: reads %.1f GB/s; products of training %.0f GFLOP/s, of rows %.0f (%.2f)\n",
              int8 ? "int8" : c10::toString(type), cpu_isa_name(cpu_isa()), at::get_num_threads(), bandwidth / 1e9,
              rate / 1e9, row_rate / 1e9, row_rate / rate);
  double alone = 0;
  for (const int64_t count : {1, 16}) {
    if (!is_wanted(count)) continue;
    Streams streams(model, count, 64);
    for (int64_t position = 0; position < context; position += kPiece)
      streams.pass(std::min(kPiece, context - position), position);
    const double seconds = median_seconds(turns_or(15), [&] { streams.pass(1, context); });
    if (count == 1) alone = seconds;
    const double bytes = weight_bytes + static_cast<double>(count * context) * bytes_of_token;
    std::printf("%2ld streams, context %ld: %.2f ms a pass, %.0f tokens/s (%.1f times one), %.2f of the bandwidth\n",
                count, context, 1e3 * seconds, static_cast<double>(count) / seconds,
                static_cast<double>(count) * alone / seconds, bytes / seconds / bandwidth);
  }
  for (const int64_t length : {int64_t{512}, int64_t{2000}}) {
    if (!is_wanted(length)) continue;
    Streams streams(model, 1, 64);
    const double seconds = median_seconds(turns_or(3), [&] {
      for (int64_t position = 0; position < length; position += kPiece)
        streams.pass(std::min(kPiece, length - position), position);
    });
    std::printf("prompt of %ld: %.0f ms, %.0f tokens/s, %.2f of the rate of products\n", length, 1e3 * seconds,
                static_cast<double>(length) / seconds, products * static_cast<double>(length) / seconds / rate);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--threads") arguments.threads = std::atol(argv[i + 1]);
    if (name == "--context") arguments.context = std::atol(argv[i + 1]);
    if (name == "--layers") arguments.layers = std::atol(argv[i + 1]);
    if (name == "--type") arguments.type = argv[i + 1];
    if (name == "--only") arguments.only = std::atol(argv[i + 1]);
    if (name == "--turns") arguments.turns = std::atol(argv[i + 1]);
  }
  tensor::install_cpu_allocator();
  if (arguments.threads > 0) at::set_num_threads(static_cast<int>(arguments.threads));
  const at::NoGradGuard no_grad;
  measure(arguments);
  return 0;
}
