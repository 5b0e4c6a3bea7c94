#include "plan/time/work.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "spec/ghost.h"

namespace espalier::plan {
namespace {

using spec::Ghost;

// Walks one depth. Sizes as in the table of the header.
class Worker : public spec::GhostOps {
 public:
  Worker(const RunShape& run, const spec::Depth& depth, const Program& program) : run_(run), program_(program) {
    const spec::GridShape& grid = run.grid;
    const double samples = static_cast<double>(run.micro_batch_size);
    const double sequence = depth.tokens > 0 ? depth.tokens : static_cast<double>(run.sequence_length);
    ranks_ = static_cast<double>(grid.tensor);
    share_ = samples / static_cast<double>(grid.context);
    sequence_ = sequence;
    tokens_ = sequence * share_;
    rows_ = run.sequence_parallel ? tokens_ / ranks_ : tokens_;
    other_tokens_ = depth.other_tokens;
    other_keys_ = depth.other_keys > 0 ? depth.other_keys : depth.other_tokens;
    hidden_ = static_cast<double>(run.model.hidden_size);
    element_ = element_bytes(run.precision);
    stream_ = stream_element_bytes(run) / element_;
    widening_ = stream_ > 1 ? 1 + stream_ : 0;
  }

  DepthWork take(double forward_flops) {
    // What is left of the depth's FLOPs are products of queries with the keys that they see.
    pairs_flops_ = std::max(0.0, forward_flops * share_ - linear_flops_);
    if (program_.fused_attention) {
      work_.forward.attention_flops = pairs_flops_ / ranks_;
      work_.backward.attention_flops = 2.5 * pairs_flops_ / ranks_;  // scores again, and four products
    }
    return work_;
  }

  Ghost look_up_words() override { return moves(2 * rows_ * hidden_, 2 * rows_ * hidden_); }
  Ghost add_positions(Ghost /*x*/) override { return moves(3 * rows_ * hidden_, rows_ * hidden_); }
  Ghost dropout(Ghost x) override {
    if (!run_.model.has_dropout) return x;
    mask(rows_ * hidden_);
    return moves(2 * rows_ * hidden_, 2 * rows_ * hidden_);
  }
  Ghost widen(Ghost /*x*/) override { return moves(widening_ * rows_ * hidden_, widening_ * rows_ * hidden_); }
  Ghost norm(const Ghost& /*x*/, spec::Normalization /*kind*/, bool joins_residual) override {
    const double forward = 2 * stream_ + widening_, backward = (joins_residual ? 8 : 5) * stream_ + widening_;
    return moves(forward * rows_ * hidden_, backward * rows_ * hidden_);
  }
  Ghost self_attention(const Ghost& /*x*/, const spec::GhostAttention& sizes) override {
    const double p = tokens_ * sizes.projection / ranks_;
    product(hidden_, sizes.qkv);
    product(sizes.projection, hidden_);
    if (sizes.normed_heads > 0) moves(4 * p, 10 * p);
    if (sizes.rotary) moves(4 * p, 4 * p);
    attend(sizes, sequence_, p);
    return add_residual();
  }
  Ghost mlp(const Ghost& /*x*/, double inner, double ffn) override {
    product(hidden_, inner);
    product(ffn, hidden_);
    moves(tokens_ * (inner + ffn) / ranks_, tokens_ * (ffn + 3 * inner) / ranks_);
    return add_residual();
  }
  void keep_other(Ghost /*x*/) override {}
  void encode_beside(const spec::GhostBeside& sizes, const spec::GhostProgram& program) override {
    const double sequence = std::exchange(sequence_, sizes.tokens);
    const double tokens = tokens_, rows = rows_, of_sample = sizes.tokens / sequence;
    const double other_tokens = std::exchange(other_tokens_, sizes.read_tokens);
    const double other_keys = std::exchange(other_keys_, sizes.read_keys);
    tokens_ *= of_sample;
    rows_ *= of_sample;
    program(*this, nullptr);
    sequence_ = sequence;
    tokens_ = tokens;
    rows_ = rows;
    other_tokens_ = other_tokens;
    other_keys_ = other_keys;
  }
  Ghost cross_attention(const Ghost& /*x*/, const spec::GhostAttention& sizes) override {
    const double p = tokens_ * sizes.projection / ranks_;
    product(hidden_, sizes.projection);
    const double other = other_tokens_ * share_;
    const double keys = sizes.qkv - sizes.projection;
    add_linear(2 * other * hidden_ * keys);
    product(sizes.projection, hidden_);
    attend(sizes, other_keys_, p);
    return add_residual();
  }
  Ghost dense_activation(Ghost /*x*/) override {
    add_linear(2 * tokens_ * hidden_ * hidden_ * ranks_);  // whole on every rank
    return moves(2 * tokens_ * hidden_, 4 * tokens_ * hidden_);
  }
  Ghost also_first_token(Ghost x) override { return x; }
  void language_model_loss(Ghost /*x*/) override {
    const double logits = tokens_ * static_cast<double>(run_.model.vocabulary.padded_size) / ranks_;
    product(hidden_, static_cast<double>(run_.model.vocabulary.padded_size));
    // Forward and backward of the loss together, half of them each.
    work_.forward.moved_bytes += program_.loss_bytes * logits / 2;
    work_.backward.moved_bytes += program_.loss_bytes * logits / 2;
  }

 private:
  Ghost moves(double forward, double backward) {
    work_.forward.moved_bytes += forward * element_;
    work_.backward.moved_bytes += backward * element_;
    return std::make_shared<spec::GhostTensor>(count_, 0);
  }
  void mask(double elements) {
    if (!run_.model.has_dropout) return;
    work_.forward.moved_bytes += elements;
    work_.backward.moved_bytes += elements;
  }
  // Linear layers of all tensor ranks together.
  void add_linear(double flops) {
    linear_flops_ += flops;
    work_.forward.matrix_flops += flops / ranks_;
    work_.backward.matrix_flops += 2 * flops / ranks_;
    work_.weight_flops += flops / ranks_;
  }
  void product(double in, double out) { add_linear(2 * tokens_ * in * out); }
  Ghost add_residual() {
    mask(rows_ * hidden_);
    const double forward = 3 * stream_ + widening_;
    const double backward = (run_.model.has_dropout ? 3 : 1) * stream_ + widening_;
    return moves(forward * rows_ * hidden_, backward * rows_ * hidden_);
  }
  // Between the projections, over `keys` positions of each sample; p: elements of the queries.
  void attend(const spec::GhostAttention& sizes, double keys, double p) {
    moves(2 * p, 11 * p);
    if (program_.fused_attention) {
      moves(4 * p, 8 * p);
      return;
    }
    const double scores = sizes.heads / ranks_ * tokens_ * keys;
    moves(2 * scores, 3 * scores);  // softmax
    if (run_.model.has_dropout) {
      mask(scores);
      moves(2 * scores, 2 * scores);
    }
    const double flops = 4 * tokens_ * keys * sizes.projection / ranks_;  // of every pair of positions
    work_.forward.score_flops += flops;
    work_.forward.score_bytes += 2 * scores * element_;
    work_.backward.score_flops += 2 * flops;
    work_.backward.score_bytes += 4 * scores * element_;
  }

  const RunShape& run_;
  const Program& program_;
  double other_tokens_ = 0, other_keys_ = 0;
  double ranks_ = 1, share_ = 1, sequence_ = 0, tokens_ = 0, rows_ = 0, hidden_ = 0, element_ = 2;
  // Of an element of the residual stream, in elements of the compute type; what one costs that changes its type.
  double stream_ = 1, widening_ = 0;
  double linear_flops_ = 0, pairs_flops_ = 0;
  spec::ByteCount count_;
  DepthWork work_;
};

}  // namespace

Work& Work::operator+=(const Work& other) {
  matrix_flops += other.matrix_flops;
  attention_flops += other.attention_flops;
  score_flops += other.score_flops;
  score_bytes += other.score_bytes;
  moved_bytes += other.moved_bytes;
  return *this;
}

DepthWork depth_work(const RunShape& run, int64_t number, const Program& program) {
  const spec::Depth& depth = run.model.depths[static_cast<size_t>(number)];
  Worker worker(run, depth, program);
  Ghost x;
  if (depth.before) x = depth.before(worker, x);
  x = depth.ghost(worker, x);
  if (depth.after) depth.after(worker, x);
  return worker.take(depth.forward_flops);
}

double matrix_seconds(double flops, const Machine& machine, Precision precision) {
  const double peak = precision == Precision::kFp32 ? machine.peak_flops_fp32 : machine.peak_flops;
  return flops / (peak * machine.matrix_share);
}

WorkTime work_time(const Work& work, const Machine& machine, Precision precision) {
  const double peak = precision == Precision::kFp32 ? machine.peak_flops_fp32 : machine.peak_flops;
  const double scores =
      std::max(matrix_seconds(work.score_flops, machine, precision), work.score_bytes / machine.memory_bandwidth);
  return {.matrices = matrix_seconds(work.matrix_flops, machine, precision),
          .attention = work.attention_flops / (peak * machine.attention_share) + scores,
          .moving = work.moved_bytes / machine.memory_bandwidth};
}

}  // namespace espalier::plan
