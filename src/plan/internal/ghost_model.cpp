#include "plan/internal/ghost_model.h"

#include <utility>

namespace espalier::plan::internal {
namespace {

constexpr double kFp32 = 4, kInt64 = 8;
// Of kernels/: tokens of a block of a weight gradient; rows of the vocabulary at once, forward and backward; fp32
// logits at once, and kept.
constexpr double kGradTokens = 1024, kForwardRows = 4096, kBackwardRows = 1024;
constexpr double kLogitBlock = 16 << 20, kKeptLogits = 256 << 20;

}  // namespace

void GhostModel::save(const char* op, const char* name, const Ghost& tensor) {
  if (!recording_) return;
  const bool again = std::find(saved_tensors_.begin(), saved_tensors_.end(), tensor.get()) != saved_tensors_.end();
  saved_tensors_.push_back(tensor.get());
  saved_.push_back({op, name, tensor->bytes(), again});
}

void GhostModel::push(Backward backward) {
  if (has_graph_) graph_.push_back(std::move(backward));
}

// Each step of the graph lets go what it kept when it has run.
Ghost GhostModel::run_backward(size_t down_to, Ghost gradient) {
  while (graph_.size() > down_to) {
    const Backward step = std::move(graph_.back());
    graph_.pop_back();
    gradient = step(std::move(gradient));
  }
  return gradient;
}

double GhostModel::product_bytes(double in, double out) const {
  switch (s_.products) {
    case ProductKind::kDirect: return 0;
    case ProductKind::kPacked: return in * out * 2;
    case ProductKind::kWidened: return (s_.tokens * in + in * out + s_.tokens * out) * kFp32;
  }
  return 0;
}

double GhostModel::weight_grad_bytes(double in, double out) const {
  const double block = std::min(s_.tokens, kGradTokens);
  if (s_.products == ProductKind::kPacked) return block * in * 2;
  return s_.element == kFp32 ? 0 : block * (in + out) * kFp32;
}

Ghost GhostModel::linear(const Ghost& x, double in, double out) {
  need(product_bytes(in, out));
  if (has_graph_) save("linear", "x", x);
  push([this, x, in, out](const Ghost& dy) {
    need(product_bytes(out, in));
    const Ghost dx = make(s_.tokens * in * s_.element);
    if (deferring_)
      deferred_.insert(deferred_.end(), {x, dy});
    else
      need(weight_grad_bytes(in, out));
    return dx;
  });
  return make(s_.tokens * out * s_.element);
}

Ghost GhostModel::gather(const Ghost& x) {
  if (!s_.sequence_parallel) return x;
  push([this](const Ghost&) { return make_x(); });
  return make(s_.tokens * s_.hidden * s_.element);
}

Ghost GhostModel::sum_and_split(Ghost x) {
  if (!s_.sequence_parallel) return x;
  push([this](const Ghost&) { return make(s_.tokens * s_.hidden * s_.element); });
  return make_x();
}

// The message is laid out for sending, and the answer for use: one copy beside each.
Ghost GhostModel::exchange(Ghost x, double bytes) {
  if (!s_.context_parallel) return x;
  const auto swap = [this, bytes] {
    const Ghost message = make(bytes), answer = make(bytes);
    return make(bytes);
  };
  push([swap](const Ghost&) { return swap(); });
  return swap();
}

Ghost GhostModel::norm(const Ghost& x, bool rms, bool joins_residual) {
  const char* op = rms ? "rms_norm" : "layer_norm";
  const Ghost y = make_x(), mean = make(rms ? 0 : s_.rows * kFp32), rstd = make(s_.rows * kFp32);
  if (has_graph_) {
    save(op, "x", x);
    if (!rms) save(op, "mean", mean);
    save(op, "rstd", rstd);
  }
  // What is kept goes before the gradient is added to that of the residual stream, in place.
  push([this, x = x, mean, rstd, joins_residual](Ghost dy) mutable {
    Ghost dx = make_x();
    if (!joins_residual) return dx;
    return std::exchange(residual_gradient_, Ghost());
  });
  return y;
}

Ghost GhostModel::head_norm(const Ghost& qkv) {
  if (!s_.head_norm) return qkv;
  const Ghost result = make(qkv->bytes()), rstd = make(s_.tokens * s_.normed_heads * kFp32);
  if (has_graph_) {
    save("qk_norm", "qkv", qkv);
    save("qk_norm", "rstd", rstd);
  }
  push([this, qkv, rstd](const Ghost&) { return make(qkv->bytes()); });
  return result;
}

Ghost GhostModel::rotary(const Ghost& qkv) {
  if (s_.positions == 0) return qkv;
  if (has_graph_) save("rotary", "positions", positions_);
  const double bytes = qkv->bytes();
  push([this, bytes](const Ghost&) { return make(bytes); });
  return make(bytes);
}

Ghost GhostModel::attention(const Ghost& qkv) {
  const Ghost result = make(s_.tokens * s_.projection * s_.element);
  if (!has_graph_) return result;
  const Ghost log_sum_exp = make(s_.tokens * s_.heads * kFp32);
  save("attention", "qkv", qkv);
  save("attention", "result", result);
  save("attention", "log_sum_exp", log_sum_exp);
  push([this, qkv, result, log_sum_exp](const Ghost&) { return make(qkv->bytes()); });
  return result;
}

Ghost GhostModel::activation(const Ghost& x) {
  if (has_graph_) save("bias_activation", "x", x);
  push([this, x](const Ghost&) { return make(x->bytes()); });
  return make(s_.tokens * s_.ffn * s_.element);
}

// bias_dropout_add: the gradient of the residual stream goes past the layer.
Ghost GhostModel::add_dropout(const Ghost& x) {
  push([this](const Ghost& dy) {
    residual_gradient_ = dy;
    return s_.dropout ? make_x() : dy;
  });
  return make_x();
}

Ghost GhostModel::self_attention(const Ghost& x) {
  const double bytes = s_.tokens * s_.qkv * s_.element;
  Ghost qkv = exchange(linear(gather(x), s_.hidden, s_.qkv), bytes);
  qkv = head_norm(qkv);
  qkv = rotary(qkv);
  const Ghost mixed = exchange(attention(qkv), s_.tokens * s_.projection * s_.element);
  return add_dropout(sum_and_split(linear(mixed, s_.projection, s_.hidden)));
}

Ghost GhostModel::mlp(const Ghost& x) {
  const Ghost inner = activation(linear(gather(x), s_.hidden, s_.inner));
  return add_dropout(sum_and_split(linear(inner, s_.ffn, s_.hidden)));
}

Ghost GhostModel::layer(const Ghost& x) {
  // Under ZeRO 3 weights come before a layer runs, in either direction, and go after it.
  const Ghost weights = make(s_.layer_weights);
  push([this](const Ghost& dy) {
    layer_weights_.reset();
    return dy;
  });
  const Ghost y = layer_with_weights(x);
  push([this](const Ghost& dy) {
    layer_weights_ = make(s_.layer_weights);
    return dy;
  });
  return y;
}

Ghost GhostModel::layer_with_weights(const Ghost& x) {
  const Ghost attention_input = norm(x, s_.rms_norm, true);
  const Ghost a = self_attention(attention_input);
  const Ghost mlp_input = norm(a, s_.rms_norm, true);
  return mlp(mlp_input);
}

Ghost GhostModel::layers(Ghost x, int64_t num_layers) {
  for (int64_t number = 0; number < num_layers; ++number) x = layer(x);
  return x;
}

Ghost GhostModel::recomputed(const Ghost& x, int64_t num_layers) {
  const bool divided = s_.kept_input_share < 1;
  const Ghost kept = divided ? make(x->bytes() * s_.kept_input_share) : x;
  save("recompute", "input", kept);
  push([this, kept, divided, num_layers](const Ghost& dy) {
    const Ghost input = divided ? make_x() : kept;
    const size_t below = graph_.size();
    const bool recorded = std::exchange(recording_, false);
    const Ghost result = layers(input, num_layers);
    recording_ = recorded;
    return run_backward(below, dy);
  });
  const bool recorded = std::exchange(recording_, false);
  has_graph_ = false;
  const Ghost result = layers(x, num_layers);
  has_graph_ = true;
  recording_ = recorded;
  return result;
}

Ghost GhostModel::embed(const Part& part) {
  const Ghost ids = make(s_.tokens * kInt64);
  save("embedding", "ids", ids);
  push([ids](const Ghost&) { return Ghost(); });
  Ghost x = sum_and_split(make(s_.tokens * s_.hidden * s_.element));
  if (part.has_norm) x = norm(x, /*rms=*/false, false);
  if (part.has_positions) {
    const Ghost places = make(s_.rows * kInt64);
    save("embedding", "ids", places);
    push([places](const Ghost& dy) { return dy; });
    const Ghost positions = make_x();
    x = make_x();
  }
  if (s_.dropout) {
    push([this](const Ghost&) { return make_x(); });
    x = make_x();
  }
  return x;
}

double GhostModel::logit_block() const { return std::min(kLogitBlock, s_.tokens * s_.vocabulary * kFp32); }

void GhostModel::output(const Ghost& hidden) {
  const Ghost x = gather(norm(hidden, s_.rms_norm, false));
  const Ghost labels = make(s_.tokens * kInt64), mask = make(s_.tokens * kFp32);
  const Ghost losses = make(s_.tokens * kFp32), log_sum_exp = make(s_.tokens * kFp32);
  const double all_logits = s_.tokens * s_.vocabulary * kFp32;
  const bool panels = s_.products == ProductKind::kPacked;
  const Ghost kept_logits = make(panels ? 0 : std::min(kKeptLogits, all_logits));
  if (panels) {
    need(std::min(kForwardRows, s_.vocabulary) * s_.hidden * 2);
  } else {
    const Ghost wide = make(s_.element == kFp32 ? 0 : s_.tokens * s_.hidden * kFp32);
    const Ghost block = make(kept_logits->bytes() < all_logits ? logit_block() : 0);
    need(s_.element == kFp32 ? 0 : logit_block() / s_.tokens * s_.hidden);
  }
  save("linear_cross_entropy", "x", x);
  save("linear_cross_entropy", "labels", labels);
  save("linear_cross_entropy", "loss_mask", mask);
  save("linear_cross_entropy", "log_sum_exp", log_sum_exp);
  save("linear_cross_entropy", "kept_logits", kept_logits);
  push([this, x, labels, mask, log_sum_exp, kept_logits, panels](const Ghost&) {
    if (deferring_) deferred_.insert(deferred_.end(), {x, labels, mask, log_sum_exp, kept_logits});
    return panels ? output_backward_panels(x) : output_backward_wide(x, kept_logits);
  });
}

Ghost GhostModel::output_backward_panels(const Ghost& x) {
  const Ghost dx = make(s_.tokens * s_.hidden * kFp32);
  const Ghost packed = make(deferring_ ? 0 : s_.tokens * s_.hidden * 2);
  const Ghost logit_gradients = make(s_.tokens * kBackwardRows * 2);
  need(2 * std::min(kBackwardRows, s_.vocabulary) * s_.hidden * 2);
  return make(x->bytes());
}

Ghost GhostModel::output_backward_wide(const Ghost& x, const Ghost& kept_logits) {
  const bool short_type = s_.element != kFp32;
  const Ghost wide = make(short_type ? s_.tokens * s_.hidden * kFp32 : 0);
  const Ghost dx = make(s_.tokens * s_.hidden * kFp32), block = make(logit_block());
  need(short_type ? logit_block() / s_.tokens * s_.hidden : 0);
  return short_type ? make(x->bytes()) : dx;
}

void GhostModel::forward(const Part& part) {
  positions_ = make(s_.positions * kInt64);
  Ghost x = part.embeds ? embed(part) : make_x();
  if (!part.embeds) input_ = x;
  const Recompute& recompute = part.recompute;
  int64_t done = 0;
  const int64_t in_ranges = recompute.kind == Recompute::Kind::kNone ? 0
                            : recompute.kind == Recompute::Kind::kUniform
                                ? part.num_layers
                                : std::min(recompute.num_layers, part.num_layers);
  const int64_t each = recompute.kind == Recompute::Kind::kUniform ? recompute.num_layers : 1;
  for (; done < in_ranges; done += each) x = recomputed(x, std::min(each, part.num_layers - done));
  x = layers(x, std::max<int64_t>(0, part.num_layers - done));
  if (part.has_output)
    output(x);
  else
    output_ = x;
}

void GhostModel::backward(bool deferring) {
  deferring_ = deferring;
  const Ghost gradient = run_backward(0, output_ == nullptr ? Ghost() : make_x());
  input_.reset();
  output_.reset();
  positions_.reset();
}

void GhostModel::weight_grads() { deferred_.clear(); }

}  // namespace espalier::plan::internal
