// A parameter as data: everything about it but its numbers, and without torch.
//
// For each family a function gives the list of its ParamSpecs from its config (families/). That one list serves
// initialisation, gradient reduction, the norm (each logical element once), ZeRO ranges, replica checks, checkpoints,
// export and the planner's counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::spec {

// Where the elements of a parameter are along the tensor axis.
//
// Replicated: every tensor rank holds all of it. Split: dimension `dim` consists of `segments` (their sizes add up
// to the dimension); each segment is divided over the tensor ranks in whole units of `unit` rows, so that query/key/
// value groups (unit = 3 * head size) and the two halves of a gated unit (two segments) stay one tensor. When the
// units of a segment do not divide, the last ranks get fewer (a vocabulary that pads differently).
struct Placement {
  enum class Kind { kReplicated, kSplit };
  Kind kind = Kind::kReplicated;
  int dim = 0;
  std::vector<int64_t> segments;
  int64_t unit = 1;

  static Placement replicated() { return {}; }
  static Placement split(int dim, std::vector<int64_t> segments, int64_t unit = 1) {
    return {Kind::kSplit, dim, std::move(segments), unit};
  }
};

// How values are drawn at the start of a run (docs/numerics.md: counter-based, the same in every layout).
struct Init {
  enum class Kind { kNormal, kUniform, kConstant };
  Kind kind = Kind::kConstant;
  double value = 0;  // standard deviation, the bound of [-bound, bound), or the constant
  static Init normal(double standard_deviation) { return {Kind::kNormal, standard_deviation}; }
  static Init uniform(double bound) { return {Kind::kUniform, bound}; }
  static Init constant(double value) { return {Kind::kConstant, value}; }
};

// Glorot and Bengio (2010): uniform within sqrt(6 / (rows + columns)) of 0, for a matrix of that shape.
Init xavier_uniform(const std::vector<int64_t>& shape);

// Rows of a stored matrix that together are one matrix of the model: `count` rows from `first` on, and again `stride`
// rows further, `times` in all. The queries of a fused projection, say, whose groups follow one another.
struct MatrixRows {
  int64_t first = 0, count = 0, stride = 0, times = 1;
  int64_t num_rows() const { return count * times; }
};

struct ParamSpec {
  std::string name;            // global: "layers.7.self_attention.query_key_value.weight"
  std::vector<int64_t> shape;  // global
  Placement tensor_placement;
  // Place in the model's depth: 0 embedding, 1..L transformer layers, L+1 what follows the last layer. A partition of
  // depths over pipeline stages says which stage owns the parameter; elsewhere it is absent.
  int64_t depth = 0;
  Init init;
  bool weight_decay = false;
  // Of a weight of a layer: the matrices that it holds, each of all its columns. They share no row and leave none out.
  // Empty for everything else: embeddings, output layers, biases, norms.
  std::vector<MatrixRows> matrices;
  // muP: how many times as wide the model is as the one that its learning rate was chosen for.
  double width = 1;
  // Replicated over the tensor ranks, of which each uses it for heads of its own (norms of heads): its gradients are
  // summed over them whether or not the sequence is split as well.
  bool use_is_split = false;
  // Depths besides its own that use it too (a tied embedding: the last one). Its gradients are summed over the stages
  // of all of them.
  std::vector<int64_t> other_depths;
  // In a stage's list (plan/stage_params.h), where several pipeline stages hold the parameter: these, in order.
  std::vector<int64_t> stages;
  // There as well: one that another stage owns. It counts, and is saved, there.
  bool is_copy = false;

  bool is_shared() const { return !other_depths.empty(); }
  // At another depth than its own.
  bool is_used_at(int64_t other) const;

  int64_t num_elements() const;
};

// Number of elements of the whole model, each counted once.
int64_t num_elements(const std::vector<ParamSpec>& specs);

// Names of the depths of a model that is a stack of layers: "embedding", "00000" (the first layer), ..., "final".
std::string stack_depth_name(int64_t depth, int64_t num_layers);

}  // namespace espalier::spec
