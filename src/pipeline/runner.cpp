#include "pipeline/runner.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <utility>

#include "base/error.h"
#include "base/whereabouts.h"
#include "tensor/observe.h"

namespace espalier::pipeline {
namespace {

using plan::Action;
// A micro-batch in one of this process's parts.
using Place = std::pair<int64_t, int64_t>;  // chunk, micro-batch

// Of the sum that is differentiated, for a term's sum; computed in double.
at::Tensor gradient_of(const LossTerm& term, const GradientFactor& factor) {
  if (!factor.times_count) return at::full({}, term.weight * (factor.numerator / factor.divisor), term.sum.options());
  const at::Tensor divisor = term.count.to(at::kDouble) * factor.divisor;
  const at::Tensor quotient = at::full({}, factor.numerator, divisor.options()) / divisor;
  return (at::where(divisor > 0, quotient, at::zeros_like(quotient)) * term.weight).to(term.sum.scalar_type());
}

void run_backward(const Loss& loss, const LossFactor& factor) {
  torch::autograd::variable_list roots, gradients;
  for (const LossTerm& term : loss) {
    if (term.is_measure) continue;
    roots.push_back(term.sum);
    gradients.push_back(gradient_of(term, factor(term)));
  }
  torch::autograd::backward(roots, gradients);
}

void run_backward(const std::vector<NamedTensor>& outputs, const std::vector<at::Tensor>& received) {
  torch::autograd::variable_list roots;
  for (const NamedTensor& output : outputs) roots.push_back(output.tensor);
  torch::autograd::backward(roots, received);
}

}  // namespace

struct Runner::Step {
  // What a forward leaves for its backward.
  struct Flight {
    std::vector<NamedTensor> inputs;   // leaves; their gradients go to the part before
    std::vector<NamedTensor> outputs;  // of which gradients come from the next part
    Loss loss;
    std::vector<dist::Pending> sends;  // of the outputs
    size_t num_deferred = 0;           // pieces of weight-gradient work that its backward left
  };
  struct Message {
    std::vector<at::Tensor> tensors;
    std::vector<dist::Pending> exchanges;
  };
  enum class Direction { kForward, kBackward };

  Runner& runner;
  const std::vector<Action>& schedule;
  const std::vector<tensor::Batch>& micro_batches;
  bool training;
  const AfterMicroBatch& after;
  LossRecord losses = {};
  std::map<Place, Flight> flights = {};
  std::map<std::pair<Direction, Place>, Message> expected = {};
  std::deque<Message> gradients_sent = {};
  std::deque<size_t> deferred = {};

  int64_t num_stages() const { return runner.stages_.size(); }
  int64_t part(int64_t chunk) const { return chunk * num_stages() + runner.stages_.rank(); }
  int64_t last_part() const { return static_cast<int64_t>(runner.chunks_.size()) * num_stages() - 1; }
  const tensor::Batch& batch(int64_t micro_batch) const { return micro_batches[static_cast<size_t>(micro_batch)]; }
  Stage& stage(int64_t chunk) const { return *runner.chunks_[static_cast<size_t>(chunk)]; }

  // Distinguishes the messages between two stages: the part that sends, and the micro-batch.
  int tag(int64_t sending_part, int64_t micro_batch, Direction direction) const {
    return static_cast<int>((micro_batch * (last_part() + 1) + sending_part) * 2 + (direction == Direction::kBackward));
  }

  static int line(Direction direction) {
    return direction == Direction::kForward ? dist::kForwardLine : dist::kBackwardLine;
  }

  void run(const LossFactor& factor) {
    for (size_t at = 0; at < schedule.size(); ++at) {
      // One ahead, so that the message travels while this process computes.
      expect(schedule[at]);
      if (at + 1 < schedule.size()) expect(schedule[at + 1]);
      const Action& action = schedule[at];
      note_progress(action.micro_batch);
      tensor::set_observed_place(part(action.chunk), action.micro_batch);
      switch (action.kind) {
        case Action::Kind::kForward: forward(action); break;
        case Action::Kind::kBackward: backward(action, factor); break;
        case Action::Kind::kWeightGrad: weight_grad(); break;
      }
    }
    for (auto& [place, flight] : flights)
      for (dist::Pending& send : flight.sends) send.wait();
    for (Message& message : gradients_sent)
      for (dist::Pending& send : message.exchanges) send.wait();
    ESPALIER_CHECK(runner.queue_.num_pending() == 0, runner.queue_.num_pending(), " weight gradients were not added");
  }

  // Posts the receipt of what an action needs from another stage, unless that was done.
  void expect(const Action& action) {
    if (action.kind == Action::Kind::kWeightGrad) return;
    const bool is_forward = action.kind == Action::Kind::kForward;
    const int64_t here = part(action.chunk);
    if (here == (is_forward ? 0 : last_part())) return;
    const Direction direction = is_forward ? Direction::kForward : Direction::kBackward;
    const auto [entry, is_new] = expected.try_emplace({direction, {action.chunk, action.micro_batch}});
    if (!is_new) return;
    const int64_t sender = is_forward ? here - 1 : here + 1;
    const Stage& receiver = stage(action.chunk);
    const tensor::Batch& micro_batch = batch(action.micro_batch);
    for (const TensorShape& shape :
         is_forward ? receiver.input_shapes(micro_batch) : receiver.output_shapes(micro_batch)) {
      const at::Tensor values = at::empty(shape.sizes, micro_batch.ids.options().dtype(shape.type));
      entry->second.tensors.push_back(values);
      entry->second.exchanges.push_back(runner.stages_.start_receive(
          values, sender % num_stages(), tag(sender, action.micro_batch, direction), line(direction)));
    }
  }

  std::vector<at::Tensor> take(Direction direction, const Place& place) {
    auto message = expected.extract({direction, place});
    if (message.empty()) return {};
    for (dist::Pending& exchange : message.mapped().exchanges) exchange.wait();
    return std::move(message.mapped().tensors);
  }

  void forward(const Action& action) {
    const Place place{action.chunk, action.micro_batch};
    Flight flight;
    const std::vector<at::Tensor> received = take(Direction::kForward, place);
    const std::vector<TensorShape> shapes = stage(action.chunk).input_shapes(batch(action.micro_batch));
    for (size_t i = 0; i < received.size(); ++i)
      flight.inputs.push_back({shapes[i].name, received[i].requires_grad_(training)});
    StageOutput output =
        stage(action.chunk)
            .forward({.batch = &batch(action.micro_batch), .tensors = flight.inputs, .training = training});
    if (part(action.chunk) == last_part()) {
      losses.add(action.micro_batch, output.loss, batch(action.micro_batch));
      flight.loss = std::move(output.loss);
    } else {
      const int64_t receiver = part(action.chunk) + 1;
      for (const NamedTensor& tensor : output.tensors)
        flight.sends.push_back(runner.stages_.start_send(tensor.tensor.detach(), receiver % num_stages(),
                                                         tag(receiver - 1, action.micro_batch, Direction::kForward),
                                                         dist::kForwardLine));
      flight.outputs = std::move(output.tensors);
    }
    if (!training) {
      flight.inputs.clear();
      flight.outputs.clear();
      flight.loss.clear();
    }
    flights.emplace(place, std::move(flight));
    if (!training) limit_evaluation_sends();
  }

  void backward(const Action& action, const LossFactor& factor) {
    const Place place{action.chunk, action.micro_batch};
    auto node = flights.extract(place);
    ESPALIER_CHECK(!node.empty(), "backward of micro-batch ", action.micro_batch, " before its forward");
    Flight& flight = node.mapped();
    const size_t before = runner.queue_.num_pending();
    if (part(action.chunk) == last_part())
      run_backward(flight.loss, factor);
    else
      run_backward(flight.outputs, take(Direction::kBackward, place));
    deferred.push_back(runner.queue_.num_pending() - before);
    // Its gradient has come back, so the activation has long arrived.
    for (dist::Pending& send : flight.sends) send.wait();
    tell_of_micro_batch();
    if (flight.inputs.empty()) return;
    Message message;
    const int64_t here = part(action.chunk);
    for (const NamedTensor& input : flight.inputs) {
      const at::Tensor gradient = input.tensor.grad().contiguous();
      message.tensors.push_back(gradient);
      message.exchanges.push_back(runner.stages_.start_send(gradient, (here - 1) % num_stages(),
                                                            tag(here, action.micro_batch, Direction::kBackward),
                                                            dist::kBackwardLine));
    }
    gradients_sent.push_back(std::move(message));
    limit_gradient_sends();
  }

  void tell_of_micro_batch() {
    if (!after) return;
    ESPALIER_CHECK(deferred.back() == 0 && runner.chunks_.size() == 1,
                   "the gradients of a micro-batch are not those that were added between two backward passes");
    after();
  }

  void weight_grad() {
    ESPALIER_CHECK(!deferred.empty(), "a weight gradient before its backward");
    const at::NoGradGuard no_grad;  // as in the backward pass that put it off
    runner.queue_.drain(deferred.front());
    deferred.pop_front();
  }

  // No stage has more micro-batches between forward and backward than there are parts, twice that with interleaving:
  // a gradient sent before that many others has been received, and its memory can go.
  void limit_gradient_sends() {
    const size_t limit = 2 * static_cast<size_t>(last_part() + 1);
    while (gradients_sent.size() > limit) {
      for (dist::Pending& send : gradients_sent.front().exchanges) send.wait();
      gradients_sent.pop_front();
    }
  }

  // In evaluation nothing comes back. A stage may be so far ahead of the next.
  void limit_evaluation_sends() {
    const size_t limit = 2 * static_cast<size_t>(last_part() + 1);
    while (flights.size() > limit) {
      for (dist::Pending& send : flights.begin()->second.sends) send.wait();
      flights.erase(flights.begin());
    }
  }
};

Runner::Runner(std::vector<Stage*> chunks, const dist::Group& stages, tensor::GradQueue& queue)
    : chunks_(std::move(chunks)), stages_(stages), queue_(queue) {
  ESPALIER_CHECK(!chunks_.empty() && (chunks_.size() == 1 || stages.size() > 1), chunks_.size(), " parts on one of ",
                 stages.size(), " stages");
}

LossRecord Runner::train(const std::vector<Action>& schedule, const std::vector<tensor::Batch>& micro_batches,
                         const LossFactor& factor, const AfterMicroBatch& after) {
  bool defers = false;
  for (const Action& action : schedule) defers = defers || action.kind == Action::Kind::kWeightGrad;
  queue_.set_mode(defers ? tensor::GradQueue::Mode::kDeferred : tensor::GradQueue::Mode::kImmediate);
  Step step{*this, schedule, micro_batches, /*training=*/true, after};
  step.run(factor);
  return std::move(step.losses);
}

std::vector<LossTotal> Runner::evaluate(const std::vector<Action>& schedule,
                                        const std::vector<tensor::Batch>& micro_batches) {
  const at::NoGradGuard no_grad;
  const AfterMicroBatch nobody;
  Step step{*this, schedule, micro_batches, /*training=*/false, nobody};
  step.run({});
  return step.losses.totals();
}

}  // namespace espalier::pipeline
