#include "train/recording.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.h"
#include "base/format.h"
#include "base/hash.h"
#include "train/finite_values.h"

namespace espalier::train {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::array kPasses = {"forward", "recomputed", "backward", "gradient"};

int64_t pass_number(const std::string& pass) {
  return std::find(kPasses.begin(), kPasses.end(), pass) - kPasses.begin();
}

// Elements at once, so that a large activation is not there twice in double.
constexpr int64_t kMeasuredAtOnce = int64_t{1} << 20;

void measure(const at::Tensor& values, Observation& seen) {
  const at::Tensor host = values.detach().to(at::kCPU).contiguous();
  seen.type = c10::toString(host.scalar_type());
  seen.shape = host.sizes().vec();
  seen.digest = hash64(host.const_data_ptr(), host.nbytes());
  const at::Tensor flat = host.reshape({-1});
  double squares = 0;
  for (int64_t begin = 0; begin < flat.numel(); begin += kMeasuredAtOnce) {
    const at::Tensor part = flat.narrow(0, begin, std::min(kMeasuredAtOnce, flat.numel() - begin)).to(at::kDouble);
    const at::Tensor finite = at::isfinite(part);
    const int64_t num_bad = part.numel() - finite.sum().item<int64_t>();
    if (num_bad > 0 && seen.num_not_finite == 0) {
      const int64_t at = at::argmax(finite.logical_not().to(at::kByte)).item<int64_t>();
      const double value = part[at].item<double>();
      seen.first_not_finite = begin + at;
      seen.first_value = std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    }
    seen.num_not_finite += num_bad;
    const at::Tensor numbers = num_bad == 0 ? part : at::where(finite, part, 0);
    squares += (numbers * numbers).sum().item<double>();
    seen.largest = std::max(seen.largest, numbers.abs().max().item<double>());
  }
  seen.norm = std::sqrt(squares);
}

// What makes two observations those of the same tensor. Gradients are of no rank: replicas hold the same.
auto key_of(const Observation& one) {
  return std::tuple(one.pass, one.operation, one.first_sample, one.num_samples, one.tensor_rank, one.context_rank,
                    one.shape);
}

double relative_difference(double a, double b) {
  const double largest = std::max(std::abs(a), std::abs(b));
  return a == b ? 0 : largest > 0 ? std::abs(a - b) / largest : INFINITY;
}

bool comes_before(const Observation& a, const Observation& b) {
  const auto place = [](const Observation& one) {
    const bool is_forward = pass_number(one.pass) <= 1;
    // Of gradients the order is that of the parameters.
    const int64_t order = one.pass == "gradient" ? -one.order : one.order;
    return std::tuple(pass_number(one.pass), one.first_sample, is_forward ? one.part : -one.part, order, one.rank);
  };
  return place(a) < place(b);
}

std::vector<int64_t> index_of_first(const Observation& one) {
  std::vector<int64_t> index(one.shape.size());
  int64_t rest = one.first_not_finite;
  for (size_t dim = one.shape.size(); dim-- > 0;) {
    index[dim] = rest % one.shape[dim];
    rest /= one.shape[dim];
  }
  return index;
}

std::string list_text(const std::vector<int64_t>& numbers) {
  std::string text;
  for (const int64_t number : numbers) text += concat(text.empty() ? "" : ", ", number);
  return "[" + text + "]";
}

}  // namespace

Recorder::Recorder(Job& job, Keeps keeps)
    : job_(job),
      keeps_(keeps),
      before_(tensor::observer()),
      first_sample_(job.trainer().position().consumed_samples),
      num_micro_batches_(job.trainer().num_micro_batches()) {
  tensor::set_observer(this);
}

Recorder::~Recorder() { tensor::set_observer(before_); }

// A second forward pass of the same operation is a layer that runs again for its backward pass.
void Recorder::see(const std::string& operation, const at::Tensor& values, const tensor::ObservedPlace& place) {
  const dist::Grid& grid = job_.grid();
  Observation seen{.operation = operation,
                   .rank = grid.rank,
                   .tensor_rank = grid.position.tensor,
                   .context_rank = grid.position.context,
                   .micro_batch = place.micro_batch,
                   .part = place.part,
                   .order = num_seen_++,
                   .type = {},
                   .shape = {},
                   .first_value = {}};
  if (place.pass == tensor::Pass::kGradient) {
    seen.pass = "gradient";
    seen.micro_batch = 0;
  } else {
    const int64_t size = job_.config().training.micro_batch_size;
    const int64_t number_in_step = job_.train_loader().takes_turns()
                                       ? place.micro_batch * grid.shape.data + grid.position.data
                                       : grid.position.data * num_micro_batches_ + place.micro_batch;
    seen.first_sample = first_sample_ + number_in_step * size;
    seen.num_samples = size;
    const bool is_forward = place.pass == tensor::Pass::kForward;
    const int64_t count = is_forward ? counts_[concat(operation, " ", place.part, " ", place.micro_batch)]++ : 0;
    seen.pass = !is_forward ? "backward" : count == 0 ? "forward" : "recomputed";
  }
  if (keeps_ == Keeps::kFirstNotFinite) {
    if (is_finite(values) || (!observations_.empty() && !comes_before(seen, observations_.front()))) return;
    observations_.clear();
  }
  measure(values, seen);
  observations_.push_back(std::move(seen));
}

std::string to_json(const Observation& one) {
  return OrderedJson{{"pass", one.pass},
                     {"operation", one.operation},
                     {"rank", one.rank},
                     {"tensor_rank", one.tensor_rank},
                     {"context_rank", one.context_rank},
                     {"micro_batch", one.micro_batch},
                     {"first_sample", one.first_sample},
                     {"num_samples", one.num_samples},
                     {"part", one.part},
                     {"order", one.order},
                     {"type", one.type},
                     {"shape", one.shape},
                     {"digest", hex64(one.digest)},
                     {"norm", one.norm},
                     {"largest", one.largest},
                     {"not_finite", one.num_not_finite},
                     {"first_not_finite", one.first_not_finite},
                     {"first_value", one.first_value}}
      .dump();
}

Observation observation_from_json(const std::string& line, const std::string& origin) {
  try {
    const OrderedJson json = OrderedJson::parse(line);
    Observation one{.pass = json.at("pass"),
                    .operation = json.at("operation"),
                    .rank = json.at("rank"),
                    .tensor_rank = json.at("tensor_rank"),
                    .context_rank = json.at("context_rank"),
                    .micro_batch = json.at("micro_batch"),
                    .first_sample = json.at("first_sample"),
                    .num_samples = json.at("num_samples"),
                    .part = json.at("part"),
                    .order = json.at("order"),
                    .type = json.at("type"),
                    .shape = json.at("shape"),
                    .digest = std::stoull(json.at("digest").get<std::string>(), nullptr, 16),
                    .norm = json.at("norm"),
                    .largest = json.at("largest"),
                    .num_not_finite = json.at("not_finite"),
                    .first_not_finite = json.at("first_not_finite"),
                    .first_value = json.at("first_value")};
    if (pass_number(one.pass) == static_cast<int64_t>(kPasses.size())) throw std::invalid_argument(one.pass);
    return one;
  } catch (const std::exception&) {
    throw UserError(concat(origin, ": expected a line of 'espalier replay --record', found '", line.substr(0, 60),
                           "'. The file is cut off, damaged or of another program."),
                    ExitCode::kBadData);
  }
}

void sort(std::vector<Observation>& observations) { std::sort(observations.begin(), observations.end(), comes_before); }

std::string describe(const Observation& one) {
  if (one.pass == "gradient") return concat("gradient of '", one.operation, "' (rank ", one.rank, ")");
  return concat(one.pass,
                one.pass == "forward"    ? " pass"
                : one.pass == "backward" ? " pass"
                                         : "",
                " of ",
                one.num_samples == 1
                    ? concat("sample ", one.first_sample)
                    : concat("samples ", one.first_sample, " to ", one.first_sample + one.num_samples - 1),
                " (micro-batch ", one.micro_batch, ", rank ", one.rank, "): ", one.operation);
}

std::string describe_not_finite(const Observation& one) {
  const std::string others =
      one.num_not_finite == 1 ? "" : concat("; ", format_count(one.num_not_finite), " of its values are not finite");
  return concat("element ", list_text(index_of_first(one)), " of ", list_text(one.shape), " is ", one.first_value,
                others);
}

// [s, b, ...], or [s/cp, b, ...] and less, where the token is not known from this alone.
std::optional<BadToken> bad_token(const Observation& one, int64_t sequence_length) {
  if (one.num_not_finite == 0 || one.num_samples == 0 || one.shape.size() < 2 || one.shape[1] != one.num_samples)
    return std::nullopt;
  const std::vector<int64_t> index = index_of_first(one);
  return BadToken{one.first_sample + index[1],
                  one.shape[0] == sequence_length ? std::optional(index[0]) : std::nullopt};
}

bool holds(const data::SampleSource& source, const data::SamplePiece& piece, const BadToken& bad) {
  return source.shows_places() && bad.token && piece.at <= *bad.token && *bad.token < piece.at + piece.length;
}

RecordingComparison compare(const std::vector<Observation>& mine, const std::vector<Observation>& other) {
  std::map<decltype(key_of(mine.front())), const Observation*> others;
  for (const Observation& one : other) others.emplace(key_of(one), &one);
  RecordingComparison found;
  for (const Observation& one : mine) {
    const auto same = others.find(key_of(one));
    if (same == others.end()) {
      ++found.num_other_shape;
      continue;
    }
    const Observation& theirs = *same->second;
    ++found.num_compared;
    if (one.digest == theirs.digest && one.type == theirs.type) {
      ++found.num_equal;
      continue;
    }
    if (!found.first_different) found.first_different = {one, theirs};
    const double difference =
        one.num_not_finite != theirs.num_not_finite ? INFINITY : relative_difference(one.norm, theirs.norm);
    if (!found.largest || difference > found.largest_difference) {
      found.largest_difference = difference;
      found.largest = {one, theirs};
    }
  }
  return found;
}

}  // namespace espalier::train
