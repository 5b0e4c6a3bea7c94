// The table of one vector type; included once in the unit of each instruction set, after its vector.
#pragma once

#include "kernels/internal/activation_rows.h"
#include "kernels/internal/dropout_rows.h"
#include "kernels/internal/fp8_rows.h"
#include "kernels/internal/layer_norm_rows.h"
#include "kernels/internal/optimizer_rows.h"
#include "kernels/internal/paged_attention_rows.h"
#include "kernels/internal/rms_norm_rows.h"
#include "kernels/internal/rotary_rows.h"
#include "kernels/internal/row_product_panels.h"
#include "kernels/internal/row_product_rows.h"
#include "kernels/internal/softmax_rows.h"
#include "kernels/internal/wide_panels.h"

namespace espalier::kernels {

template <class V, class T, class F>
constexpr ActivationKernels activation_kernels() {
  return {.forward = activation_forward<V, T, F>,
          .backward = activation_backward<V, T, F>,
          .gated_forward = gated_forward<V, T, F>,
          .gated_backward = gated_backward<V, T, F>};
}

template <class V, class T>
constexpr TypedRowKernels typed_row_kernels() {
  return {.layer_norm_forward = layer_norm_forward<V, T>,
          .layer_norm_backward = layer_norm_backward<V, T>,
          .rms_norm_forward = rms_norm_forward<V, T>,
          .rms_norm_backward = rms_norm_backward<V, T>,
          .qk_norm_forward = qk_norm_forward<V, T>,
          .qk_norm_backward = qk_norm_backward<V, T>,
          .rotate_halves = rotate_rows<V, T, RotateHalves>,
          .rotate_pairs = rotate_rows<V, T, RotatePairs>,
          .activations = {activation_kernels<V, T, GeluTanh<V>>(), activation_kernels<V, T, GeluErf<V>>(),
                          activation_kernels<V, T, Relu<V>>(), activation_kernels<V, T, SquaredRelu<V>>(),
                          activation_kernels<V, T, Silu<V>>(), activation_kernels<V, T, Identity<V>>()},
          .dropout = dropout_rows<V, T>,
          .update = optimizer_kernels<V, T>(spec::Optimizers()),
          .row_product = row_product<V, T>,
          .panel_row_product = panel_row_product<V, T>,
          .pack_tokens = pack_tokens<V, T>,
          .append_to_pages = append_to_pages<V, T>,
          .paged_attention = paged_attention<V, T>,
          .pack_rows = {pack_along<V, T, kPanelRows<V>>, pack_across<V, T, kPanelRows<V>>},
          .pack_columns = {pack_along<V, T, kPanelColumns<V>>, pack_across<V, T, kPanelColumns<V>>},
          .column_sums = column_sums<V, T>,
          .round_row = round_row<V, T>,
          .add_to_row = add_to_row<V, T>,
          .softmax_accumulate = softmax_accumulate<V, T>,
          .softmax_gradient = softmax_gradient<V, T, T>,
          .softmax_gradient_rounded = softmax_gradient_rounded<V, T>,
          .softmax_gradient_fp32 = softmax_gradient<V, T, float>};
}

template <class V>
void philox_words_of(const PhiloxRoundKeys& keys, uint32_t first, uint32_t word1, uint32_t word2, uint32_t word3,
                     uint32_t* words) {
  philox_words(V::all(0), keys, first, word1, word2, word3, words);
}

template <class V>
constexpr RowKernels make_row_kernels() {
  return {.fp32 = typed_row_kernels<V, float>(),
          .bf16 = typed_row_kernels<V, Bf16>(),
          .fp16 = typed_row_kernels<V, Fp16>(),
          .panel_rows = kPanelRows<V>,
          .panel_columns = kPanelColumns<V>,
          .multiply_panels = multiply_panels<V>,
          .add_partials = add_partials<V>,
          .soft_cap = soft_cap<V>,
          .sum_of_squares = sum_of_squares<V>,
          .count_zeros = count_zeros<V>,
          .count_not_finite = count_not_finite<V>,
          .largest_magnitude = largest_magnitude<V>,
          .round_to_grid = round_to_grid<V>,
          .philox_words = philox_words_of<V>};
}

}  // namespace espalier::kernels
