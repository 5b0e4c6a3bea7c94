#include "plan/lr_phases.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "base/format.h"

namespace espalier::plan {
namespace {

struct ShapeName {
  LrShape shape;
  const char* name;
};

constexpr ShapeName kShapeNames[] = {
    {LrShape::kConstant, "constant"},
    {LrShape::kLinear, "linear"},
    {LrShape::kCosine, "cosine"},
    {LrShape::kMinusSqrt, "minus-sqrt"},
    {LrShape::kExponential, "exponential"},
    {LrShape::kGeometric, "geometric"},
    {LrShape::kInverseSqrt, "inverse-sqrt"},
    {LrShape::kScaledInverseSqrt, "scaled-inverse-sqrt"},
};

// The order of operations is that of the originals: the results of linear and cosine are equal to the last bit.
double rate_in(const LrPhase& phase, double start, double position) {
  const double span = phase.from - phase.to;
  const double passed = position - start, length = phase.end - start;
  const double share = passed / length;
  switch (phase.shape) {
    case LrShape::kConstant: return phase.from;
    case LrShape::kLinear:
      if (phase.to > phase.from) return phase.from + (phase.to - phase.from) * passed / length;
      return phase.to + (1.0 - share) * span;
    case LrShape::kCosine: return phase.to + 0.5 * (std::cos(std::numbers::pi * share) + 1.0) * span;
    case LrShape::kMinusSqrt: return phase.to + (1.0 - std::sqrt(share)) * span;
    case LrShape::kExponential: return phase.to + (2.0 * std::pow(0.5, share) - 1.0) * span;
    case LrShape::kGeometric: {
      const double rate = phase.from * std::exp(std::log(phase.to / phase.from) / length * passed);
      return phase.to < phase.from ? std::max(phase.to, rate) : std::min(phase.to, rate);
    }
    case LrShape::kInverseSqrt:
      return std::max(phase.to, phase.from * std::sqrt(std::max(start, 1.0)) / std::sqrt(std::max(position, 1.0)));
    case LrShape::kScaledInverseSqrt: {
      const auto curve = [&](double at) { return 1.0 / std::sqrt(1.0 + phase.timescale * at) - 1.0; };
      return phase.from - span * (curve(share) / curve(1.0));
    }
  }
  return phase.from;
}

std::optional<LrShape> shape_of(const std::string& name) {
  for (const ShapeName& known : kShapeNames)
    if (name == known.name) return known.shape;
  return std::nullopt;
}

std::optional<double> number_of(std::string text) {
  std::erase(text, '_');
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0)
    return std::nullopt;
  return value;
}

// One word of --lr-phases, its defaults still open.
struct PhaseWord {
  LrShape shape = LrShape::kConstant;
  std::optional<double> samples;  // empty: the rest of the run
  std::optional<double> from, to;
};

class PhaseReader {
 public:
  PhaseReader(const LrUnits& units, const std::string& option, Problems& problems)
      : units_(units), option_(option), problems_(problems) {}

  void read(const std::string& word) {
    word_ = word;
    std::vector<std::string> parts = {""};
    for (const char c : word) c == ':' ? parts.emplace_back() : parts.back() += std::string(1, c);
    if (parts.size() < 2 || parts.size() > 4) return refuse("is not SHAPE:LENGTH[:FROM[:TO]]");
    const std::optional<LrShape> shape = shape_of(parts[0]);
    if (!shape) {
      std::vector<std::string> names;
      for (const ShapeName& known : kShapeNames) names.emplace_back(known.name);
      return refuse(concat("has no known shape; use ", join(names, ", ")));
    }
    PhaseWord read{.shape = *shape, .samples = {}, .from = {}, .to = {}};
    if (!read_length(parts[1], read)) return;
    for (size_t at = 2; at < parts.size(); ++at) {
      if (parts[at].empty()) continue;
      const std::optional<double> rate = number_of(parts[at]);
      if (!rate) return refuse(concat("has '", parts[at], "' where a learning rate of at least 0 belongs"));
      (at == 2 ? read.from : read.to) = rate;
    }
    words_.emplace_back(word, read);
  }

  std::vector<LrPhase> phases() {
    double known = 0;
    for (const auto& [word, read] : words_) known += read.samples.value_or(0);
    const double rest = static_cast<double>(units_.samples) - known;
    std::vector<LrPhase> list;
    double end = 0;
    for (const auto& [word, read] : words_) {
      word_ = word;
      if (!read.samples && rest <= 0) refuse("has nothing left: the other phases fill the run");
      end += read.samples.value_or(rest);
      LrPhase phase{.shape = read.shape, .end = end, .name = to_string(read.shape)};
      const bool begins = list.empty(), is_linear = read.shape == LrShape::kLinear;
      phase.from = read.from.value_or(!begins ? list.back().to : is_linear ? 0 : units_.peak);
      phase.to = read.to.value_or(read.shape == LrShape::kConstant ? phase.from
                                  : begins && is_linear            ? units_.peak
                                                                   : units_.floor);
      check_rates(phase);
      list.push_back(phase);
    }
    return list;
  }

 private:
  void refuse(const std::string& why) { problems_.add(option_, ": '", word_, "' ", why); }

  bool read_length(const std::string& text, PhaseWord& into) {
    if (text == "rest") {
      if (has_rest_) refuse("is a second 'rest'; only one phase can take what the others leave");
      has_rest_ = true;
      return true;
    }
    const size_t unit_at = std::min(text.size(), text.find_first_of("st"));
    const std::string unit = text.substr(unit_at);
    const std::optional<double> count = number_of(text.substr(0, unit_at));
    if (text.find(' ') != std::string::npos) {
      refuse("has a blank; give each phase as a word of its own, without quotes around all of them");
      return false;
    }
    if (!count || *count <= 0 || (!unit.empty() && unit != "steps" && unit != "samples" && unit != "tokens")) {
      refuse(concat("has the length '", text,
                    "'; use a number above 0, alone or with steps, samples or tokens (100, 1e6samples), or rest"));
      return false;
    }
    const bool in_steps = unit == "steps" || (unit.empty() && units_.counts_steps);
    into.samples = in_steps           ? *count * static_cast<double>(units_.samples_a_step)
                   : unit == "tokens" ? *count / static_cast<double>(units_.tokens_a_sample)
                                      : *count;
    return true;
  }

  void check_rates(const LrPhase& phase) {
    if (phase.shape == LrShape::kConstant && phase.from != phase.to)
      refuse(concat("goes from ", format_shortest(phase.from), " to ", format_shortest(phase.to),
                    ": a constant phase has one rate"));
    if (phase.shape == LrShape::kGeometric && (phase.from <= 0 || phase.to <= 0))
      refuse("would never reach 0: a geometric phase needs two rates above 0");
    const bool falls_only = phase.shape == LrShape::kInverseSqrt || phase.shape == LrShape::kScaledInverseSqrt;
    if (falls_only && phase.to > phase.from)
      refuse(concat("would rise from ", format_shortest(phase.from), " to ", format_shortest(phase.to),
                    "; an inverse root falls"));
  }

  const LrUnits& units_;
  const std::string& option_;
  Problems& problems_;
  std::string word_;
  std::vector<std::pair<std::string, PhaseWord>> words_;
  bool has_rest_ = false;
};

}  // namespace

std::string to_string(LrShape shape) {
  for (const ShapeName& known : kShapeNames)
    if (known.shape == shape) return known.name;
  return "";
}

LrPlace rate_at(const std::vector<LrPhase>& phases, double start, double position) {
  ESPALIER_CHECK(!phases.empty(), "a schedule without phases");
  double from = start;
  for (size_t at = 0; at < phases.size(); ++at) {
    if (position <= phases[at].end && phases[at].end > from) return {rate_in(phases[at], from, position), at};
    from = std::max(from, phases[at].end);
  }
  return {phases.back().to, phases.size()};
}

std::vector<LrPhase> read_phases(const std::vector<std::string>& words, const LrUnits& units, const std::string& option,
                                 Problems& problems) {
  PhaseReader reader(units, option, problems);
  const size_t before = problems.messages().size();
  for (const std::string& word : words) reader.read(word);
  if (problems.messages().size() > before) return {};
  std::vector<LrPhase> phases = reader.phases();
  return problems.messages().size() > before ? std::vector<LrPhase>{} : phases;
}

}  // namespace espalier::plan
