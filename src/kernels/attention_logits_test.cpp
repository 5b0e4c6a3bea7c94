// AttentionContext::max_logits beside the largest of all visible products in double.
#include "kernels/attention_reference_test.h"

namespace espalier::kernels {
namespace attention_logits_test {

using attention_reference::AttentionContext;
using attention_reference::make_context;
using attention_reference::Masks;
using attention_reference::Range;
using attention_reference::Sizes;

constexpr float kNone = -std::numeric_limits<float>::infinity();

// [heads]; what `before` holds counts as well.
at::Tensor expected_maxima(const at::Tensor& qkv, const Sizes& sizes, const AttentionContext& context) {
  const int64_t per_group = sizes.of().per_group();
  const at::Tensor parts =
      qkv.detach().to(at::kDouble).view({sizes.s, sizes.b, sizes.of().groups, per_group + 2, sizes.head_size});
  const at::Tensor q = parts.narrow(3, 0, per_group).permute({1, 2, 3, 0, 4});  // [b, groups, per group, s, d]
  const at::Tensor k = parts.narrow(3, per_group, 1).permute({1, 2, 3, 4, 0});  // [b, groups, 1, d, s]
  const at::Tensor logits = at::matmul(q, k) * context.scale.value_or(1 / std::sqrt(double(sizes.head_size)));
  const at::Tensor seen = attention_reference::visible(sizes.b, sizes.s, sizes.s, context).unsqueeze(1);
  return logits.masked_fill(seen == 0, kNone).amax(at::IntArrayRef{0, 3, 4}).view({-1});
}

const Masks kMasks[] = {{},
                        {.documents = true, .alibi = true},
                        {.window = true, .dropout = true, .capped = true},
                        {.range = Range::kFull, .relative = true},
                        {.range = Range::kPrefix, .scaled = true},
                        {.range = Range::kPadding}};

TEST(MaxLogits, AreTheLargestOfWhatQueriesSee) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const Sizes& sizes : {Sizes{1, 1, 1, 8}, Sizes{7, 3, 4, 20, 2}, Sizes{130, 3, 6, 33, 2}})
      for (const Masks& masks : kMasks) {
        AttentionContext context = make_context(sizes, masks);
        const at::Tensor qkv = attention_reference::random_qkv(sizes, type, 3);
        const at::Tensor expected = expected_maxima(qkv, sizes, context);
        for (const CpuIsa isa : reference::instruction_sets()) {
          const ForceCpuIsa force(isa);
          SCOPED_TRACE(attention_reference::describe(sizes, masks, type) + " on " + cpu_isa_name(isa));
          const at::Tensor without = attention(qkv, context, sizes.of(), attention_reference::kLayer);
          for (const bool graph : {false, true}) {
            context.max_logits = at::full({sizes.heads}, kNone);
            const at::Tensor x = qkv.detach().requires_grad_(graph);
            const at::Tensor y = attention(x, context, sizes.of(), attention_reference::kLayer);
            EXPECT_TRUE(at::equal(y.detach(), without.detach()));
            EXPECT_TRUE(at::allclose(context.max_logits.to(at::kDouble), expected, 1e-5, 1e-5))
                << context.max_logits << expected;
          }
          context.max_logits = at::Tensor();
        }
      }
}

TEST(MaxLogits, AreRaisedAndNeverLowered) {
  const Sizes sizes{33, 2, 2, 16};
  AttentionContext context = make_context(sizes, {});
  const at::Tensor qkv = attention_reference::random_qkv(sizes, at::kFloat);
  const double largest = expected_maxima(qkv, sizes, context)[0].item<double>();
  context.max_logits = at::tensor({100.0F, kNone});
  attention(qkv * 0.5, context, sizes.of(), 0);
  attention(qkv, context, sizes.of(), 0);
  attention(qkv * 0.5, context, sizes.of(), 0);
  EXPECT_EQ(context.max_logits[0].item<float>(), 100);
  EXPECT_NEAR(context.max_logits[1].item<double>(), expected_maxima(qkv, sizes, context)[1].item<double>(), 1e-5);
  EXPECT_LT(largest, 100);
}

}  // namespace attention_logits_test
}  // namespace espalier::kernels
