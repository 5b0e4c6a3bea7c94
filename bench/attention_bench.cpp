// Attention against ATen's scaled_dot_product_attention (the CPU flash kernel): forward, and forward with backward.
//
//   attention_bench [--sequence N] [--batch N] [--heads N] [--groups N] [--head-size N] [--threads N]
//                   [--document N]
//
// Prints how much faster attention is over eight packed documents of 1,024 tokens (--document N) than over one of eight
// times that length; with --sequence 0 nothing else. Then a table: milliseconds (the best of several turns, ours and
// ATen's in alternation) and their ratio. ATen gets query, key and value already split and in its preferred layout, so
// its times are without the split.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "base/cpu_isa.h"
#include "clock.h"
#include "kernels/attention.h"

namespace {

using espalier::bench::milliseconds_of;

using espalier::tensor::AttentionContext;
using espalier::tensor::KeyValueCache;

struct Sizes {
  int64_t sequence = 1024, batch = 4, heads = 12, head_size = 64;
  int64_t groups = 0;       // of heads that share keys and values; 0: as many as heads
  int64_t document = 1024;  // tokens of each of the eight in the last table

  espalier::kernels::Heads of() const { return {heads, groups == 0 ? heads : groups}; }
};

void compare(const std::string& name, const std::function<void()>& ours, const std::function<void()>& atens) {
  double our_best = 1e30, aten_best = 1e30;
  double spent = 0;
  for (int turn = 0; turn < 3 || (spent < 3000 && turn < 50); ++turn) {
    const double our_time = milliseconds_of(ours), aten_time = milliseconds_of(atens);
    our_best = std::min(our_best, our_time);
    aten_best = std::min(aten_best, aten_time);
    spent += our_time + aten_time;
  }
  std::printf("%-48s %10.3f %10.3f %8.2f\n", name.c_str(), our_best, aten_best, aten_best / our_best);
}

void compare_training(const Sizes& z, at::ScalarType type) {
  const at::Tensor qkv = at::randn({z.sequence, z.batch, z.of().columns(z.head_size)}).to(type).requires_grad_(true);
  const at::Tensor d_result = at::randn({z.sequence, z.batch, z.heads * z.head_size}).to(type);
  // [b, heads, s, d] with the heads of a position together, as a projection leaves them
  const auto part = [&](int64_t heads) {
    return at::randn({z.batch, z.sequence, heads, z.head_size}).to(type).transpose(1, 2).requires_grad_(true);
  };
  const at::Tensor q = part(z.heads), k = part(z.of().groups), v = part(z.of().groups);
  const at::Tensor d_aten = at::randn({z.batch, z.sequence, z.heads, z.head_size}).to(type).transpose(1, 2);
  const auto ours = [&](const AttentionContext& context) {
    return espalier::kernels::attention(qkv, context, z.of(), 0);
  };
  const auto atens = [&](bool causal = true) {
    return at::scaled_dot_product_attention(q, k, v, {}, 0.0, causal, {}, z.of().groups < z.heads);
  };
  const std::string suffix = std::string(" ") + c10::toString(type);
  {
    const at::NoGradGuard no_grad;
    compare(
        "forward" + suffix, [&] { ours({}); }, [&] { atens(); });
  }
  const auto train = [&](const AttentionContext& context) {
    return [&] { torch::autograd::grad({ours(context)}, {qkv}, {d_result}); };
  };
  const auto train_aten = [&] { torch::autograd::grad({atens()}, {q, k, v}, {d_aten}); };
  AttentionContext plain, alibi, relative, dropout, capped;
  compare("forward + backward" + suffix, train(plain), train_aten);
  alibi.alibi_slopes = espalier::kernels::alibi_slopes(z.heads);
  compare("  with ALiBi (ATen without)" + suffix, train(alibi), train_aten);
  relative.relative_bias = at::randn({z.heads, 2 * z.sequence - 1}).requires_grad_(true);
  const auto train_relative = [&] {
    torch::autograd::grad({ours(relative)}, {qkv, relative.relative_bias}, {d_result});
  };
  compare("  with a bias by distance (ATen without)" + suffix, train_relative, train_aten);
  dropout.dropout = 0.1;
  for (int64_t row = 0; row < z.batch; ++row) dropout.sample_numbers.push_back(row);
  compare("  with dropout (ATen without)" + suffix, train(dropout), train_aten);
  capped.soft_cap = 50;
  compare("  with a soft cap (ATen without)" + suffix, train(capped), train_aten);

  // What no query of a tile sees is skipped.
  const auto train_aten_full = [&] { torch::autograd::grad({atens(false)}, {q, k, v}, {d_aten}); };
  const at::Tensor positions = at::arange(z.sequence, at::kInt).repeat({z.batch, 1});
  AttentionContext full, padded, documents;
  full.mask = padded.mask = AttentionContext::Mask::kFull;
  compare("  bidirectional" + suffix, train(full), train_aten_full);
  padded.last_key = at::where(positions < z.sequence / 2, z.sequence / 2 - 1, -1).to(at::kInt).contiguous();
  compare("  half of it padding (ATen whole)" + suffix, train(padded), train_aten_full);
  const int64_t length = std::max<int64_t>(1, z.sequence / 8);
  documents.first_key = (at::floor_divide(positions, length) * length).to(at::kInt).contiguous();
  compare("  eight documents (ATen one)" + suffix, train(documents), train_aten);
}

// What --reset-attention-mask saves: forward and backward of one sequence that holds eight documents, and one.
void compare_documents(const Sizes& z, at::ScalarType type) {
  const int64_t length = 8 * z.document;
  const at::Tensor qkv = at::randn({length, 1, z.of().columns(z.head_size)}).to(type).requires_grad_(true);
  const at::Tensor d_result = at::randn({length, 1, z.heads * z.head_size}).to(type);
  AttentionContext documents;
  const at::Tensor positions = at::arange(length, at::kInt).view({1, length});
  documents.first_key = (at::floor_divide(positions, z.document) * z.document).to(at::kInt).contiguous();
  const auto train = [&](const AttentionContext& context) {
    return milliseconds_of(
        [&] { torch::autograd::grad({espalier::kernels::attention(qkv, context, z.of(), 0)}, {qkv}, {d_result}); });
  };
  double one = 1e30, eight = 1e30;
  for (int turn = 0; turn < 3; ++turn) {
    one = std::min(one, train({}));
    eight = std::min(eight, train(documents));
  }
  std::printf("forward + backward %s, one row: a document of %ld %.1f ms, eight of %ld %.1f ms: %.2f times as fast\n",
              c10::toString(type), length, one, z.document, eight, one / eight);
}

// One query per row against a cache of `sequence` keys.
void compare_decoding(const Sizes& z, at::ScalarType type) {
  const at::NoGradGuard no_grad;
  KeyValueCache cache;
  cache.capacity = z.sequence;
  const auto random = [&] { return at::randn({z.batch, z.of().groups, z.sequence, z.head_size}).to(type); };
  cache.layers = {{random(), random(), {}}};
  cache.lengths.assign(static_cast<size_t>(z.batch), z.sequence - 1);
  AttentionContext context;
  context.cache = &cache;
  const at::Tensor qkv = at::randn({1, z.batch, z.of().columns(z.head_size)}).to(type);
  const at::Tensor q = at::randn({z.batch, z.heads, 1, z.head_size}).to(type);
  compare(
      std::string("one query, cached ") + c10::toString(type),
      [&] { espalier::kernels::attention(qkv, context, z.of(), 0); },
      [&] {
        at::scaled_dot_product_attention(q, cache.layers[0].keys, cache.layers[0].values, {}, 0.0, false, {},
                                         z.of().groups < z.heads);
      });
  const double bytes = 2.0 * z.batch * z.of().groups * z.sequence * z.head_size * q.element_size();
  std::printf("  (reads %.1f MB of keys and values)\n", bytes / 1e6);
}

}  // namespace

int main(int argc, char** argv) {
  Sizes sizes;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const int64_t value = std::atoll(argv[i + 1]);
    if (flag == "--sequence") sizes.sequence = value;
    if (flag == "--batch") sizes.batch = value;
    if (flag == "--heads") sizes.heads = value;
    if (flag == "--groups") sizes.groups = value;
    if (flag == "--head-size") sizes.head_size = value;
    if (flag == "--document") sizes.document = value;
    if (flag == "--threads") at::set_num_threads(static_cast<int>(value));
  }
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) compare_documents(sizes, type);
  if (sizes.sequence == 0) return 0;
  std::printf("s=%ld b=%ld heads=%ld/%ld head_size=%ld, causal, %d threads, %s\n", sizes.sequence, sizes.batch,
              sizes.heads, sizes.of().groups, sizes.head_size, at::get_num_threads(),
              espalier::cpu_isa_name(espalier::cpu_isa()));
  std::printf("%-48s %10s %10s %8s\n", "", "ours ms", "ATen ms", "ratio");
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    compare_training(sizes, type);
    compare_decoding(sizes, type);
  }
  return 0;
}
