// The row kernels of every instruction set that the machine has give the bits of the generic ones.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "base/cpu_isa.h"
#include "kernels/activation.h"
#include "kernels/dropout.h"
#include "kernels/embedding.h"
#include "kernels/internal/row_dispatch.h"
#include "kernels/layer_norm.h"
#include "kernels/optimizer_update.h"
#include "kernels/qk_norm.h"
#include "kernels/reference_test.h"
#include "kernels/rms_norm.h"
#include "kernels/rotary.h"
#include "tensor/rng.h"

namespace espalier::kernels {
namespace row_kernels_test {

using reference::random;
using reference::TestParam;

std::vector<CpuIsa> vector_levels() {
  std::vector<CpuIsa> levels;
  for (const CpuIsa isa : {CpuIsa::kNeon, CpuIsa::kAvx2, CpuIsa::kAvx512}) {
    const std::span<const CpuIsa> here = cpu_isas_of_machine();
    if (std::find(here.begin(), here.end(), isa) != here.end()) levels.push_back(isa);
  }
  return levels;
}

// Equal bits, NaN included.
void expect_same_bits(const at::Tensor& actual, const at::Tensor& expected, const char* what) {
  ASSERT_EQ(actual.nbytes(), expected.nbytes());
  EXPECT_EQ(std::memcmp(actual.contiguous().const_data_ptr(), expected.contiguous().const_data_ptr(), actual.nbytes()),
            0)
      << what << " " << actual.sizes() << " " << actual.scalar_type();
}

// Master, states and value of each optimizer after an update whose state is the square of the gradient.
std::vector<at::Tensor> updated_by_all(const tensor::Param& param) {
  std::vector<at::Tensor> results;
  for (const spec::OptimizerKind& kind : spec::optimizer_kinds()) {
    OptimizerTensors tensors{.master = param.value.to(at::kFloat, false, true),
                             .states = {},
                             .grad = param.grad.clone(),
                             .value = at::zeros_like(param.value)};
    for (size_t state = 0; state < kind.states.size(); ++state) tensors.states.push_back(param.grad.pow(2));
    optimizer_update(kind, {{tensors, kind.constants({}, {.lr = 0.1, .weight_decay = 0.1, .number = 2})}});
    for (const at::Tensor& tensor : {tensors.master, tensors.grad, tensors.value}) results.push_back(tensor);
    for (const at::Tensor& state : tensors.states) results.push_back(state);
  }
  return results;
}

// Every result of a chain of all ops and updates.
std::vector<at::Tensor> run_all(CpuIsa isa, at::ScalarType type, int64_t hidden) {
  const ForceCpuIsa force(isa);
  const std::vector<int64_t> samples = {3, 4, 70};
  const DropoutSite site{.probability = 0.3, .key = tensor::philox_key(9, "dropout/test"), .sample_numbers = &samples};
  TestParam table(random({11, hidden}, type, 1)), weight(random({hidden}, type, 2)), bias(random({hidden}, type, 3));
  TestParam gelu_bias(random({hidden}, type, 4)), add_bias(random({hidden}, type, 5));
  tensor::GradQueue queue;
  const at::Tensor ids = (at::arange(3 * 17) * 7 % 11).view({3, 17});
  const at::Tensor x = embedding(ids, table.param, queue);
  const at::Tensor normalized = layer_norm(x, weight.param, bias.param, 1e-5, queue);
  const at::Tensor tanh = bias_activation(normalized, &gelu_bias.param, spec::Activation::kGeluTanh, queue);
  const at::Tensor erf = bias_activation(tanh, &gelu_bias.param, spec::Activation::kGeluErf, queue);
  const at::Tensor y = bias_dropout_add(erf, &add_bias.param, x, site, queue);
  y.backward(random({17, 3, hidden}, type, 6));
  std::vector<at::Tensor> results = {x, normalized, tanh, erf, y};
  for (TestParam* param : {&table, &weight, &bias, &gelu_bias, &add_bias}) {
    results.push_back(param->param.grad);
    for (const at::Tensor& tensor : updated_by_all(param->param)) results.push_back(tensor);
    results.push_back(
        at::full({1}, measure({{.values = param->param.grad, .squares = true}})[0].sum_of_squares, at::kDouble));
  }
  return results;
}

TEST(RowKernels, EveryInstructionSetGivesTheSameBits) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t hidden : {1, 7, 33, 64, 300}) {
      const std::vector<at::Tensor> generic = run_all(CpuIsa::kGeneric, type, hidden);
      for (const CpuIsa isa : vector_levels()) {
        const std::vector<at::Tensor> results = run_all(isa, type, hidden);
        for (size_t i = 0; i < generic.size(); ++i) {
          expect_same_bits(results[i].detach(), generic[i].detach(), concat(cpu_isa_name(isa), " result ", i).c_str());
        }
      }
    }
  }
}

// The ops of Llama-like models; `size` is a head's, and half the width of a gated activation.
std::vector<at::Tensor> run_gated_and_heads(CpuIsa isa, at::ScalarType type, int64_t size) {
  const ForceCpuIsa force(isa);
  const Heads heads{4, 2};
  TestParam norm(random({heads.columns(size)}, type, 1)), query(random({size}, type, 2)), key(random({size}, type, 3));
  TestParam bias(random({2 * size}, type, 4));
  tensor::GradQueue queue;
  at::Tensor x = random({33, 2, heads.columns(size)}, type, 5).requires_grad_();
  const at::Tensor angle = at::arange(66 * (size / 2)).view({66, size / 2}).to(at::kFloat) * 0.01f;
  const RotaryTable table{at::cos(angle), at::sin(angle)};
  const at::Tensor positions = at::arange(66).view({2, 33});
  at::Tensor y = rms_norm(x, norm.param, 1e-6, queue);
  y = qk_norm(y, query.param, key.param, heads, 1e-6, queue);
  for (const bool interleaved : {false, true}) y = rotary(y, table, positions, heads, size, interleaved);
  y = y.view({33 * 2 * 4, 2 * size});
  std::vector<at::Tensor> results = {y};
  for (int kind = 0; kind <= static_cast<int>(spec::Activation::kLiglu); ++kind) {
    for (tensor::Param* const bias_or_null : {&bias.param, static_cast<tensor::Param*>(nullptr)}) {
      results.push_back(bias_activation(y, bias_or_null, static_cast<spec::Activation>(kind), queue));
    }
  }
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (size_t i = 1; i < results.size(); ++i) {
    loss = loss + (results[i].to(at::kDouble) * random(results[i].sizes(), at::kDouble, 6)).sum();
  }
  loss.backward();
  results.push_back(x.grad());
  for (const TestParam* param : {&norm, &query, &key, &bias}) results.push_back(param->param.grad);
  return results;
}

TEST(RowKernels, OpsOfHeadsAndGatesGiveTheSameBitsOnEveryInstructionSet) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t size : {1, 7, 33, 80}) {
      const std::vector<at::Tensor> generic = run_gated_and_heads(CpuIsa::kGeneric, type, size);
      for (const CpuIsa isa : vector_levels()) {
        const std::vector<at::Tensor> results = run_gated_and_heads(isa, type, size);
        for (size_t i = 0; i < generic.size(); ++i) {
          expect_same_bits(results[i].detach(), generic[i].detach(), concat(cpu_isa_name(isa), " result ", i).c_str());
        }
      }
    }
  }
}

TEST(RowKernels, GeluOfEveryShortNumberIsTheSameBits) {
  // All 65536 bit patterns of both short types: infinities, NaN and denormal numbers among them.
  at::Tensor bits = at::arange(65536).to(at::kShort);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    for (const spec::Activation form : {spec::Activation::kGeluTanh, spec::Activation::kGeluErf}) {
      at::Tensor outputs[2], slopes[2];
      for (const CpuIsa isa : vector_levels()) {
        for (const bool generic : {false, true}) {
          const ForceCpuIsa force(generic ? CpuIsa::kGeneric : isa);
          TestParam bias(at::zeros({256}, type));
          tensor::GradQueue queue;
          at::Tensor x = bits.view(type).view({256, 256}).detach().clone().requires_grad_();
          const at::Tensor y = bias_activation(x, &bias.param, form, queue);
          y.backward(at::ones_like(y));
          outputs[generic] = at::nan_to_num(y.detach(), 77), slopes[generic] = at::nan_to_num(x.grad(), 77);
        }
        expect_same_bits(outputs[0], outputs[1], cpu_isa_name(isa));
        expect_same_bits(slopes[0], slopes[1], cpu_isa_name(isa));
      }
    }
  }
}

TEST(RowKernels, RoundingToTheShortTypesIsThatOfATen) {
  // Values around every boundary: all exponents, with the bits below the cut at, just under and just over a half.
  std::vector<float> values;
  for (uint32_t high = 0; high < 65536; ++high) {
    for (const uint32_t low : {0x0000u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      const uint32_t bits = high << 16 | low;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      values.push_back(value);
    }
  }
  for (uint32_t exponent = 96; exponent < 145; ++exponent) {  // where fp16 rounds, denormal numbers included
    for (uint32_t top = 0; top < 1024; top += 31) {
      for (const uint32_t low : {0x0FFFu, 0x1000u, 0x1001u, 0x2FFFu, 0x3000u, 0x3001u}) {
        const uint32_t bits = exponent << 23 | top << 13 | low;
        float value;
        std::memcpy(&value, &bits, sizeof value);
        values.push_back(value);
      }
    }
  }
  const at::Tensor master = at::tensor(values), zeros = at::zeros_like(master);
  std::vector<CpuIsa> levels = vector_levels();
  levels.push_back(CpuIsa::kGeneric);
  for (const CpuIsa isa : levels) {
    const ForceCpuIsa force(isa);
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const at::Tensor value = at::zeros({master.numel()}, type);
      const spec::OptimizerKind& adam = spec::optimizer_kind(spec::OptimizerType::kAdam);
      optimizer_update(adam, {{{master, {zeros.clone(), zeros.clone()}, zeros, value}, adam.constants({}, {.lr = 0})}});
      expect_same_bits(at::nan_to_num(value, 77), at::nan_to_num(master.to(type), 77), cpu_isa_name(isa));
    }
  }
}

TEST(RowKernels, PhiloxWordsAreThoseOfTheScalarGenerator) {
  const tensor::PhiloxKey key = tensor::philox_key(1, "dropout/layers.0");
  std::vector<CpuIsa> levels = vector_levels();
  levels.push_back(CpuIsa::kGeneric);
  for (const CpuIsa isa : levels) {
    const ForceCpuIsa force(isa);
    for (const uint32_t first : {0u, 16u, 0xFFFFFFF0u}) {
      uint32_t words[kPhiloxWords];
      row_kernels().philox_words(round_keys(key), first, 0xFFFFFFFF, 0x80000001, 0x7FFFFFFF, words);
      for (uint32_t i = 0; i < kPhiloxWords; ++i) {
        const tensor::PhiloxBlock block =
            tensor::philox4x32(key, {{first + i / 4, 0xFFFFFFFF, 0x80000001, 0x7FFFFFFF}});
        ASSERT_EQ(words[i], block.word[i % 4]) << cpu_isa_name(isa) << " word " << i << " from " << first;
      }
    }
  }
}

TEST(RowKernels, ColumnSumsAddRowsInOrderWithinBlocks) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const int64_t rows : {0, 1, 7, 33, 2500}) {
      for (const int64_t columns : {1, 7, 33, 100}) {
        const at::Tensor x = random({rows, columns}, type, 1), fp32 = x.to(at::kFloat);
        const int64_t rows_per_block = std::max<int64_t>(16, (rows + 127) / 128);
        at::Tensor want = at::zeros({columns});
        for (int64_t block = 0; block < rows; block += rows_per_block) {
          at::Tensor part = at::zeros({columns});
          for (int64_t row = block; row < std::min(rows, block + rows_per_block); ++row) part += fp32[row];
          want += part;
        }
        std::vector<CpuIsa> levels = vector_levels();
        levels.push_back(CpuIsa::kGeneric);
        for (const CpuIsa isa : levels) {
          const ForceCpuIsa force(isa);
          expect_same_bits(column_sums(x), want, cpu_isa_name(isa));
        }
      }
    }
  }
}

TEST(RowKernels, BlocksCoverAllRowsOnce) {
  for (const int64_t rows : {0, 1, 7, 16, 17, 2048, 2049, 4097, 1000003}) {
    const RowBlocks blocks(rows);
    std::vector<int64_t> seen(static_cast<size_t>(blocks.num_blocks), 0);
    for_each_block(blocks, 8, [&](int64_t block, int64_t first, int64_t last) {
      EXPECT_EQ(first, block * blocks.rows_per_block);
      seen[block] = last - first;
    });
    int64_t total = 0;
    for (const int64_t count : seen) {
      EXPECT_GT(count, 0);
      total += count;
    }
    EXPECT_EQ(total, rows);
    EXPECT_LE(blocks.num_blocks, 128);
  }
}

}  // namespace row_kernels_test
}  // namespace espalier::kernels
