#include "plan/internal/ghost_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace espalier::plan::internal {
namespace {

constexpr double kFp32 = 4, kInt64 = 8;
// Of kernels/: tokens of a block of a weight gradient; rows of the vocabulary at once, forward and backward; fp32
// logits at once, and kept.
constexpr double kGradTokens = 1024, kForwardRows = 4096, kBackwardRows = 1024;
constexpr double kLogitBlock = 16 << 20, kKeptLogits = 256 << 20;
// Of fp32 panels: columns of one (16 with AVX2), the depth of a block of them, and the bytes that several blocks may
// have.
constexpr double kPanel = 32, kDepthBlock = 384, kPackedBlocks = 16 << 20;

// What is packed at once of an operand of fp32 panels.
double panel_bytes(double depth, double columns) {
  const double blocks = std::max(1.0, std::floor(kPackedBlocks / (columns * kDepthBlock * kFp32)));
  return std::ceil(columns / kPanel) * kPanel * kDepthBlock * kFp32 * std::min(blocks, depth / kDepthBlock);
}

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

bool GhostModel::packs() const { return s_.products == ProductKind::kPacked; }

double GhostModel::product_bytes(double in, double out) const {
  switch (s_.products) {
    case ProductKind::kDirect: return 0;
    case ProductKind::kWidePanels: return panel_bytes(in, out) + (s_.element == kFp32 ? 0 : s_.tokens * out * kFp32);
    case ProductKind::kPacked: return in * out * 2;
    case ProductKind::kWidened: return (s_.tokens * in + in * out + s_.tokens * out) * kFp32;
  }
  return 0;
}

double GhostModel::weight_grad_bytes(double in, double out) const {
  const double block = std::min(s_.tokens, kGradTokens);
  if (packs()) return block * in * 2;
  if (s_.products == ProductKind::kWidePanels) return panel_bytes(s_.tokens, in);
  return s_.element == kFp32 ? 0 : block * (in + out) * kFp32;
}

Ghost GhostModel::linear(const Ghost& x, double in, double out) {
  return s_.rounds_operands ? rounding_linear(x, in, out) : plain_linear(x, in, out);
}

// The rounded x is kept in the place of x; the rounded weight is made for each of two products.
Ghost GhostModel::rounding_linear(const Ghost& x, double in, double out) {
  const Ghost rounded = make(s_.tokens * in * s_.element), weight = make(in * out * s_.element);
  if (has_graph_) save("linear", "x", rounded);
  need(product_bytes(in, out));
  push([this, rounded, in, out, tokens = s_.tokens](const Ghost&) {
    const Ghost rounded_dy = make(tokens * out * s_.element);
    const auto multiply = [&] {
      const Ghost rounded_weight = make(in * out * s_.element);
      need(product_bytes(out, in));
      return make(tokens * in * s_.element);
    };
    const Ghost dx = multiply();
    if (deferring_)
      deferred_.insert(deferred_.end(), {rounded, rounded_dy});
    else
      need(weight_grad_bytes(in, out));
    return dx;
  });
  return make(s_.tokens * out * s_.element);
}

Ghost GhostModel::plain_linear(const Ghost& x, double in, double out) {
  need(product_bytes(in, out));
  if (has_graph_) save("linear", "x", x);
  push([this, x, in, out, tokens = s_.tokens](const Ghost& dy) {
    need(product_bytes(out, in));
    const Ghost dx = make(tokens * in * s_.element);
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

// The message is laid out for sending, and the answer for use: one copy in addition to each.
Ghost GhostModel::exchange(Ghost x, double bytes) {
  if (!s_.context_parallel) return x;
  const auto swap = [this, bytes] {
    const Ghost message = make(bytes), answer = make(bytes);
    return make(bytes);
  };
  push([swap](const Ghost&) { return swap(); });
  return swap();
}

Ghost GhostModel::norm(const Ghost& x, spec::Normalization kind, bool joins_residual) {
  const bool rms = kind == spec::Normalization::kRmsNorm;
  const char* op = rms ? "rms_norm" : "layer_norm";
  const Ghost y = make_x(), wide = x->bytes() > y->bytes() ? make(x->bytes()) : y,
              mean = make(rms ? 0 : s_.rows * kFp32), rstd = make(s_.rows * kFp32);
  if (has_graph_) {
    save(op, "x", x);
    if (!rms) save(op, "mean", mean);
    save(op, "rstd", rstd);
  }
  // What is kept goes before the gradient is added to that of the residual stream, in place.
  push([this, x = x, mean, rstd, joins_residual](const Ghost&) mutable {
    const Ghost dy = make_x(), wide_dy = x->bytes() > dy->bytes() ? make(x->bytes()) : dy;
    Ghost dx = make(x->bytes());
    if (!joins_residual) return dx;
    return std::exchange(residual_gradient_, Ghost());
  });
  return y;
}

Ghost GhostModel::head_norm(const Ghost& qkv, double heads) {
  const Ghost result = make(qkv->bytes()), rstd = make(s_.tokens * heads * kFp32);
  if (has_graph_) {
    save("qk_norm", "qkv", qkv);
    save("qk_norm", "rstd", rstd);
  }
  push([this, qkv, rstd](const Ghost&) { return make(qkv->bytes()); });
  return result;
}

Ghost GhostModel::rotary(const Ghost& qkv) {
  if (has_graph_) save("rotary", "positions", positions_);
  const double bytes = qkv->bytes();
  push([this, bytes](const Ghost&) { return make(bytes); });
  return make(bytes);
}

Ghost GhostModel::attention(const Ghost& qkv, double projection, double heads) {
  const Ghost result = make(s_.tokens * projection * s_.element);
  if (!has_graph_) return result;
  const Ghost log_sum_exp = make(s_.tokens * heads * kFp32);
  save("attention", "qkv", qkv);
  save("attention", "result", result);
  save("attention", "log_sum_exp", log_sum_exp);
  push([this, qkv, result, log_sum_exp](const Ghost&) { return make(qkv->bytes()); });
  return result;
}

Ghost GhostModel::activation(const Ghost& x, double ffn) {
  if (has_graph_) save("bias_activation", "x", x);
  push([this, x](const Ghost&) { return make(x->bytes()); });
  return make(s_.tokens * ffn * s_.element);
}

// bias_dropout_add: the gradient of the residual stream goes past the layer.
Ghost GhostModel::add_dropout(const Ghost& /*x*/) {
  push([this](const Ghost& dy) {
    residual_gradient_ = dy;
    if (!is_wide()) return s_.dropout ? make_x() : dy;
    const Ghost dx = s_.dropout ? make_stream() : dy;
    return make_x();
  });
  const Ghost wide_x = is_wide() ? make_stream() : Ghost();
  return make_stream();
}

Ghost GhostModel::self_attention(const Ghost& x, const spec::GhostAttention& of_model) {
  const double qkv_columns = of_model.qkv / s_.tensor_ranks, projection = of_model.projection / s_.tensor_ranks;
  Ghost qkv = exchange(linear(gather(x), s_.hidden, qkv_columns), s_.tokens * qkv_columns * s_.element);
  if (of_model.normed_heads > 0) qkv = head_norm(qkv, of_model.normed_heads / s_.tensor_ranks);
  if (of_model.rotary) qkv = rotary(qkv);
  const Ghost mixed =
      exchange(attention(qkv, projection, of_model.heads / s_.tensor_ranks), s_.tokens * projection * s_.element);
  return add_dropout(sum_and_split(linear(mixed, projection, s_.hidden)));
}

void GhostModel::set_tokens(double of_sample) {
  const double share = of_sample == 0 ? 1 : of_sample / of_run_.sequence_length;
  s_.rows = of_run_.rows * share;
  s_.tokens = of_run_.tokens * share;
}

void GhostModel::keep_other(Ghost x) {
  other_ = std::move(x);
  push([this](const Ghost&) {
    other_.reset();
    return std::exchange(other_gradient_, Ghost());
  });
}

// On the way back the encoder runs after all that attend to it; the stream's gradients wait meanwhile.
void GhostModel::encode_beside(const spec::GhostBeside& sizes, const spec::GhostProgram& program) {
  const double own_tokens = tokens_of_sample();
  std::vector<Backward> stream = std::exchange(graph_, {});
  set_tokens(sizes.read_tokens);
  other_ = make_x();
  other_tokens_ = sizes.read_tokens;
  set_tokens(sizes.tokens);
  const Ghost positions = std::exchange(positions_, make(positions_->bytes() * sizes.tokens / own_tokens));
  Ghost encoded = program(*this, nullptr);
  const Ghost own_positions = std::exchange(positions_, positions);
  other_ = std::move(encoded);
  other_tokens_ = sizes.tokens;
  set_tokens(own_tokens);
  std::swap(stream, graph_);
  push([this, steps = std::move(stream), own_tokens, tokens = sizes.tokens, own_positions](const Ghost& dy) {
    other_.reset();
    const Ghost of_stream = std::exchange(residual_gradient_, Ghost());
    set_tokens(tokens);
    Ghost gradient = std::exchange(other_gradient_, Ghost());
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) gradient = (*step)(std::move(gradient));
    other_gradient_.reset();  // of the copy: it is added to dy
    set_tokens(own_tokens);
    residual_gradient_ = of_stream;
    return dy;
  });
}

// Computed before the queries, so that its backward comes after theirs; the stream's gradient waits meanwhile.
Ghost GhostModel::keys_and_values(const spec::GhostAttention& of_model) {
  const double own_tokens = tokens_of_sample(), other_tokens = other_tokens_;
  const double columns = (of_model.qkv - of_model.projection) / s_.tensor_ranks;
  std::vector<Backward> stream = std::exchange(graph_, {});
  set_tokens(other_tokens);
  const Ghost key_value = linear(gather(other_), s_.hidden, columns);
  set_tokens(own_tokens);
  std::swap(stream, graph_);
  push([this, steps = std::move(stream), own_tokens, other_tokens](const Ghost& dy) {
    set_tokens(other_tokens);
    Ghost gradient = std::exchange(key_value_gradient_, Ghost());
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) gradient = (*step)(std::move(gradient));
    if (other_gradient_ == nullptr) other_gradient_ = std::move(gradient);  // else it is added in place
    set_tokens(own_tokens);
    return dy;
  });
  return key_value;
}

Ghost GhostModel::cross_attention(const Ghost& x, const spec::GhostAttention& of_model) {
  const double projection = of_model.projection / s_.tensor_ranks;
  const Ghost key_value = keys_and_values(of_model);
  const Ghost query = linear(gather(x), s_.hidden, projection);
  const Ghost mixed = make(s_.tokens * projection * s_.element);
  if (has_graph_) {
    const Ghost log_sum_exp = make(s_.tokens * of_model.heads / s_.tensor_ranks * kFp32);
    save("cross_attention", "query", query);
    save("cross_attention", "key_value", key_value);
    save("cross_attention", "result", mixed);
    save("cross_attention", "log_sum_exp", log_sum_exp);
    push([this, query, key_value, mixed, log_sum_exp](const Ghost&) {
      key_value_gradient_ = make(key_value->bytes());
      return make(query->bytes());
    });
  }
  return add_dropout(sum_and_split(linear(mixed, projection, s_.hidden)));
}

Ghost GhostModel::mlp(const Ghost& x, double inner, double ffn) {
  const double width = ffn / s_.tensor_ranks;
  const Ghost active = activation(linear(gather(x), s_.hidden, inner / s_.tensor_ranks), width);
  return add_dropout(sum_and_split(linear(active, width, s_.hidden)));
}

// What a depth computes, with the sizes of its stream on either way.
Ghost GhostModel::pass(const spec::GhostProgram& program, Ghost x, int64_t number) {
  const double tokens = depth(number).tokens;
  set_tokens(tokens);
  x = program(*this, x);
  push([this, tokens](const Ghost& dy) {
    set_tokens(tokens);
    return dy;
  });
  return x;
}

Ghost GhostModel::layer(const Ghost& x, int64_t number) {
  // Under ZeRO 3 weights come before a layer runs, in either direction, and go after it.
  const Ghost weights = make(s_.layer_weights);
  push([this](const Ghost& dy) {
    layer_weights_.reset();
    return dy;
  });
  const Ghost y = pass(depth(number).ghost, x, number);
  push([this](const Ghost& dy) {
    layer_weights_ = make(s_.layer_weights);
    return dy;
  });
  return y;
}

Ghost GhostModel::layers(Ghost x, const DepthRange& depths) {
  for (int64_t number = depths.begin; number < depths.end; ++number) x = layer(x, number);
  return x;
}

Ghost GhostModel::recomputed(const Ghost& x, const DepthRange& depths) {
  const bool divided = s_.kept_input_share < 1;
  const Ghost kept = divided ? make(x->bytes() * s_.kept_input_share) : x;
  save("recompute", "input", kept);
  push([this, kept, divided, depths](const Ghost& dy) {
    set_tokens(depth(depths.begin).tokens);
    const Ghost input = divided ? make_stream() : kept;
    const size_t below = graph_.size();
    const bool recorded = std::exchange(recording_, false);
    const Ghost result = layers(input, depths);
    recording_ = recorded;
    return run_backward(below, dy);
  });
  const bool recorded = std::exchange(recording_, false);
  has_graph_ = false;
  const Ghost result = layers(x, depths);
  has_graph_ = true;
  recording_ = recorded;
  return result;
}

Ghost GhostModel::look_up_words() {
  const Ghost ids = make(s_.tokens * kInt64);
  save("embedding", "ids", ids);
  push([ids](const Ghost&) { return Ghost(); });
  return sum_and_split(make(s_.tokens * s_.hidden * s_.element));
}

Ghost GhostModel::add_positions(Ghost x) {
  const Ghost places = make(s_.rows * kInt64);
  save("embedding", "ids", places);
  push([places](const Ghost& dy) { return dy; });
  const Ghost positions = make_x();
  x = make_x();
  return x;
}

Ghost GhostModel::dropout(Ghost x) {
  if (!s_.dropout) return x;
  push([this](const Ghost&) { return make_x(); });
  x = make_x();
  return x;
}

Ghost GhostModel::widen(Ghost x) {
  push([this](const Ghost&) { return make_x(); });
  x = make_stream();
  return x;
}

Ghost GhostModel::dense_activation(Ghost x) {
  const double all_tokens = std::exchange(s_.tokens, s_.rows);
  const Ghost inner = plain_linear(std::exchange(x, nullptr), s_.hidden, s_.hidden);
  s_.tokens = all_tokens;
  if (has_graph_) save("bias_activation", "x", inner);
  push([this, inner](const Ghost&) { return make_x(); });
  return make_x();
}

// The gradient of the token alone is as large as the sequence's, with zeros.
Ghost GhostModel::also_first_token(Ghost x) {
  push([this](const Ghost& dy) {
    need(2 * s_.rows * s_.hidden * s_.element);
    return dy;
  });
  return x;
}

// What the forward pass keeps of the logits.
double GhostModel::kept_logit_bytes() const {
  if (!packs()) return std::min(kKeptLogits, s_.tokens * s_.vocabulary * kFp32);
  const double fitting = std::floor(kKeptLogits / 2 / s_.tokens);  // columns of bf16
  return 2 * s_.tokens *
         (fitting >= s_.vocabulary ? s_.vocabulary : std::floor(fitting / kBackwardRows) * kBackwardRows);
}

// What a product of a block of the output layer needs besides x, logits and dx in fp32.
double GhostModel::output_product_bytes() const {
  const double rows = logit_block() / kFp32 / s_.tokens;  // of the vocabulary
  if (s_.products == ProductKind::kWidePanels)
    return std::max({panel_bytes(s_.hidden, rows), panel_bytes(rows, s_.hidden), panel_bytes(s_.tokens, s_.hidden)});
  return s_.element == kFp32 ? 0 : rows * s_.hidden * kFp32;
}

double GhostModel::logit_block() const { return std::min(kLogitBlock, s_.tokens * s_.vocabulary * kFp32); }

void GhostModel::language_model_loss(Ghost hidden) {
  const Ghost x = gather(std::exchange(hidden, nullptr));
  const Ghost labels = make(s_.tokens * kInt64), mask = make(s_.tokens * kFp32);
  const Ghost losses = make(s_.tokens * kFp32), log_sum_exp = make(s_.tokens * kFp32);
  const Ghost z_losses = make(s_.z_loss ? s_.tokens * kFp32 : 0);
  const double all_logits = s_.tokens * s_.vocabulary * kFp32;
  const bool panels = packs();
  const Ghost kept_logits = make(kept_logit_bytes());
  if (panels) {
    need(std::min(kForwardRows, s_.vocabulary) * s_.hidden * 2);
  } else {
    const Ghost wide = make(s_.element == kFp32 ? 0 : s_.tokens * s_.hidden * kFp32);
    const Ghost block = make(kept_logits->bytes() < all_logits ? logit_block() : 0);
    need(output_product_bytes());
  }
  save("linear_cross_entropy", "x", x);
  save("linear_cross_entropy", "labels", labels);
  save("linear_cross_entropy", "loss_mask", mask);
  save("linear_cross_entropy", "log_sum_exp", log_sum_exp);
  save("linear_cross_entropy", "kept_logits", kept_logits);
  push([this, x, labels, mask, log_sum_exp, kept_logits, panels](const Ghost&) {
    if (deferring_) deferred_.insert(deferred_.end(), {x, labels, mask, log_sum_exp, kept_logits});
    const Ghost log_grads = make(s_.z_loss ? s_.tokens * kFp32 : 0);
    if (deferring_) deferred_.push_back(log_grads);
    return panels ? output_backward_panels(x) : output_backward_wide(x);
  });
}

Ghost GhostModel::output_backward_panels(const Ghost& x) {
  const Ghost dx = make(s_.tokens * s_.hidden * kFp32);
  const Ghost packed = make(deferring_ ? 0 : s_.tokens * s_.hidden * 2);
  const Ghost logit_gradients = make(s_.tokens * kBackwardRows * 2);
  need(2 * std::min(kBackwardRows, s_.vocabulary) * s_.hidden * 2);
  return make(x->bytes());
}

Ghost GhostModel::output_backward_wide(const Ghost& x) {
  const bool short_type = s_.element != kFp32;
  const Ghost wide = make(short_type ? s_.tokens * s_.hidden * kFp32 : 0);
  const Ghost dx = make(s_.tokens * s_.hidden * kFp32), block = make(logit_block());
  need(output_product_bytes());
  return short_type ? make(x->bytes()) : dx;
}

void GhostModel::forward(const DepthRange& depths, const Recompute& recompute) {
  positions_ = make(s_.positions * kInt64);
  const auto last = static_cast<int64_t>(model_.depths.size()) - 1;
  for (const spec::Depth& any : model_.depths) other_tokens_ = std::max(other_tokens_, any.other_tokens);
  Ghost x = depths.contains(0) ? pass(depth(0).ghost, nullptr, 0) : receive(depths.begin - 1);
  DepthRange rest{std::max<int64_t>(1, depths.begin), std::min(last, depths.end)};
  const int64_t end_of_recomputed = rest.begin + num_recomputed(recompute, rest.count());
  const int64_t each = recompute.kind == Recompute::Kind::kUniform ? recompute.num_layers : 1;
  while (rest.begin < rest.end) {
    const bool again = rest.begin < end_of_recomputed;
    DepthRange range{rest.begin, again ? std::min(rest.begin + each, end_of_recomputed) : rest.end};
    range.end = end_of_stack(range);
    if (const auto& before = depth(range.begin).before) x = pass(before, std::move(x), range.begin);
    x = again ? recomputed(x, range) : layers(x, range);
    if (const auto& after = depth(range.end - 1).after) x = pass(after, std::move(x), range.end - 1);
    rest.begin = range.end;
  }
  if (depths.contains(last)) {
    pass(depth(last).ghost, x, last);
  } else {
    output_ = x;
    sends_other_ = depth(depths.end - 1).other_tokens > 0;
  }
}

// What comes from the stage before, whose last depth that is.
Ghost GhostModel::receive(int64_t number) {
  if (depth(number).other_tokens > 0) {
    set_tokens(depth(number).other_tokens);
    other_ = make_x();
  }
  set_tokens(depth(number).tokens);
  return input_ = make_stream();
}

// No range of layers reaches beyond what runs between two of them.
int64_t GhostModel::end_of_stack(const DepthRange& range) const {
  int64_t end = range.begin + 1;
  while (end < range.end && !depth(end - 1).after && !depth(end).before) ++end;
  return end;
}

void GhostModel::backward(bool deferring) {
  deferring_ = deferring;
  if (sends_other_) {
    const double tokens = tokens_of_sample();
    set_tokens(other_tokens_);
    other_gradient_ = make_x();
    set_tokens(tokens);
  }
  const Ghost gradient = run_backward(0, output_ == nullptr ? Ghost() : make_stream());
  input_.reset();
  output_.reset();
  positions_.reset();
  other_.reset();
  other_gradient_.reset();
}

void GhostModel::weight_grads() { deferred_.clear(); }

}  // namespace espalier::plan::internal
