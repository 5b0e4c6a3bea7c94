// What the devices have to do for one micro-batch: products, attention, and bytes that kernels move which compute next
// to nothing. Counted by walking a family's depths (spec::Depth::ghost) as its memory is. Pure functions.
//
// Bytes of a depth, in elements of the compute type, for T tokens of a rank, h wide, tensor size t, heads * head size
// p, an MLP f wide, and a mask byte for each dropped element; on the way back / sum of two gradients included:
//
//   norm                      2 T h            5 T h, and 3 T h where it joins a residual stream
//   bias, dropout, residual   3 T h            3 T h, T h without dropout
//   the same with a stream in fp32 and a shorter type: each element of it counts twice, and 3 T h on either way for
//   what becomes fp32 before the row kernels, or is rounded after them
//   activation                (i + f) / t T    (f + 3 i) / t T, i the width of what it reads
//   heads put together        2 T p / t        8 T p / t, and 3 T p / t for the bias of queries, keys and values
//   fused attention           4 T p / t        8 T p / t
//   scores, S = heads s^2 / t   6 S              9 S, without dropout 4 S and 7 S; the products move 2 S and 4 S of it
#pragma once

#include "plan/partition.h"
#include "plan/run_shape.h"
#include "plan/time/machine.h"

namespace espalier::plan {

// Of one rank.
struct Work {
  double matrix_flops = 0;
  double attention_flops = 0;               // fused
  double score_flops = 0, score_bytes = 0;  // products with scores, which wait for arithmetic or for memory
  double moved_bytes = 0;

  Work& operator+=(const Work& other);
};

struct DepthWork {
  Work forward, backward;
  double weight_flops = 0;  // of backward.matrix_flops: gradients of weights
};

// Of one micro-batch at one depth.
DepthWork depth_work(const RunShape& run, int64_t depth, const Program& program);

// Seconds of one device.
struct WorkTime {
  double matrices = 0, attention = 0, moving = 0;
  double total() const { return matrices + attention + moving; }
};
WorkTime work_time(const Work& work, const Machine& machine, Precision precision);
double matrix_seconds(double flops, const Machine& machine, Precision precision);

}  // namespace espalier::plan
