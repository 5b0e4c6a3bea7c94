// A parameter: its spec, its values, and the fp32 accumulator of its gradient.
//
// Autograd never sees a parameter. The op that owns it captures the Param, returns the gradient of its input, and adds
// the gradient of the weight in fp32 into `grad` through the run's GradQueue.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "spec/param_spec.h"

namespace espalier::tensor {

struct Param {
  const spec::ParamSpec* spec = nullptr;  // owned by the model's list, which outlives the Param
  at::Tensor value;                       // local shape, compute type; the optimizer writes it
  at::Tensor grad;                        // local shape, fp32, sum over the micro-batches of a step
  // `grad` counts as zero, whatever it holds from the step before (ParamSet::forget_grads): what comes first overwrites
  // it, so that it is neither cleared nor read.
  bool grad_is_stale = false;
  // ZeRO: `grad` is undefined but while something is added to it; GradQueue::prepare_write sees to it.
  bool grad_comes_and_goes = false;

  bool has_grad() const { return grad.defined() || grad_comes_and_goes; }
};

// Makes a stale gradient zero.
void settle_grad(Param& param);

// What a product does with a gradient: adds to it, or, as the first of a step, overwrites all of it.
enum class GradWrite { kAdd, kOverwrite };

// Runs (or keeps for later) the work that adds to parameters' gradients.
//
// kImmediate: `push` runs the work at once. kDeferred: `drain` runs it, in the order in which it was pushed, so a
// schedule can separate the weight gradient from the input gradient (zero-bubble). After the last expected piece of
// work on a parameter in a step has run, `on_complete` is called (reduction starts there). One thread.
class GradQueue {
 public:
  enum class Mode { kImmediate, kDeferred };

  void push(Param& param, std::function<void()> add);
  // Of work that can also overwrite, and is told which.
  void push_write(Param& param, std::function<void(GradWrite)> write);
  // Makes sure that `param.grad` exists and says what to do with it. Done before every piece of work; an op calls it
  // that writes by itself and then pushes nothing but the news of it.
  GradWrite prepare_write(Param& param);
  void drain() { drain(pending_.size()); }
  void drain(size_t count);  // the oldest `count` pieces
  void set_mode(Mode mode);
  Mode mode() const { return mode_; }
  // What prepare_write() calls.
  void set_before_add(std::function<void(Param&)> before_add) { before_add_ = std::move(before_add); }
  // Called after every piece of work that has run, with the parameter that it added to.
  void set_on_added(std::function<void(Param&)> on_added) { on_added_ = std::move(on_added); }
  size_t num_pending() const { return pending_.size(); }

 private:
  struct Work {
    Param* param;
    std::function<void(GradWrite)> write;
  };
  void run(Work& work);

  Mode mode_ = Mode::kImmediate;
  std::vector<Work> pending_;
  std::function<void(Param&)> before_add_, on_added_;
};

// Layers show their parameters to a visitor in the order of the family's ParamSpec list; names are built from the
// path ("layers.3." + "mlp." + "dense_h_to_4h." + "weight").
class ParamVisitor {
 public:
  explicit ParamVisitor(std::function<void(const std::string& name, Param&)> visit) : visit_(std::move(visit)) {}

  void param(const std::string& name, Param& param) { visit_(prefix_ + name, param); }

  template <class Layer>
  void child(const std::string& name, Layer& layer) {
    const std::string outer = prefix_;
    prefix_ += name + ".";
    layer.visit(*this);
    prefix_ = outer;
  }

 private:
  std::function<void(const std::string& name, Param&)> visit_;
  std::string prefix_;
};

}  // namespace espalier::tensor
