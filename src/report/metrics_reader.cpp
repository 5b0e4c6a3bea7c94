#include "report/metrics_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "base/file.h"
#include "report/json_line.h"

namespace espalier::report {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

class Reader {
 public:
  explicit Reader(const std::vector<std::string>& names) {
    for (const std::string& name : names) metrics_.columns[name];
  }

  void line(std::string_view text) {
    found_.clear();
    nested_.clear();
    std::optional<int64_t> step;
    const bool whole = for_each_member(text, [&](std::string_view key, std::string_view value) {
      if (key == "step") {
        const double number = number_of(value);
        if (number >= 0 && number < 9e15) step = static_cast<int64_t>(number);
      } else if (value.front() == '{') {
        nested_.emplace_back(key, value);
      } else if (metrics_.columns.contains(std::string(key)) || key.ends_with("loss")) {
        found_.emplace_back(key, number_of(value));
      }
    });
    if (!whole || !step) {
      ++metrics_.num_bad_lines;
    } else if (!found_.empty() || nested_.empty()) {
      add_record(*step);
    } else {
      for (const auto& [kind, value] : nested_) add_evaluations(*step, std::string(kind), value);
    }
  }

  Metrics take() { return std::move(metrics_); }

 private:
  void add_record(int64_t step) {
    while (!metrics_.steps.empty() && metrics_.steps.back() >= step) {
      metrics_.steps.pop_back();
      for (auto& [name, values] : metrics_.columns) values.pop_back();
    }
    if (has_evaluations_from(step))
      std::erase_if(metrics_.evaluations, [&](const Evaluation& old) { return old.step >= step; });
    for (const auto& [name, value] : found_)  // a loss that the first records did not have
      if (const auto [column, is_new] = metrics_.columns.try_emplace(std::string(name)); is_new)
        column->second.assign(metrics_.steps.size(), kNone);
    metrics_.steps.push_back(step);
    for (auto& [name, values] : metrics_.columns) {
      const auto at =
          std::find_if(found_.begin(), found_.end(), [&name = name](const auto& entry) { return entry.first == name; });
      values.push_back(at == found_.end() ? kNone : at->second);
    }
  }

  // They are in the order of steps, so the last one decides.
  bool has_evaluations_from(int64_t step) const {
    return !metrics_.evaluations.empty() && metrics_.evaluations.back().step >= step;
  }

  void add_evaluations(int64_t step, const std::string& kind, std::string_view sets) {
    if (has_evaluations_from(step))
      std::erase_if(metrics_.evaluations, [&](const Evaluation& old) { return old.kind == kind && old.step >= step; });
    for_each_member(sets, [&](std::string_view set, std::string_view losses) {
      if (losses.front() != '{') return;
      for_each_member(losses, [&](std::string_view name, std::string_view value) {
        metrics_.evaluations.push_back({step, kind, std::string(set), std::string(name), number_of(value)});
      });
    });
  }

  Metrics metrics_;
  std::vector<std::pair<std::string_view, double>> found_;
  std::vector<std::pair<std::string_view, std::string_view>> nested_;
};

Metrics read_lines(std::string_view text, const std::vector<std::string>& names) {
  Reader reader(names);
  for (size_t begin = 0; begin < text.size();) {
    const void* newline = std::memchr(text.data() + begin, '\n', text.size() - begin);
    const size_t end =
        newline == nullptr ? text.size() : static_cast<size_t>(static_cast<const char*>(newline) - text.data());
    if (end > begin) reader.line(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return reader.take();
}

}  // namespace

std::string Metrics::loss_column() const {
  if (columns.contains("lm_loss")) return "lm_loss";
  for (const auto& [name, values] : columns)
    if (name.ends_with("loss")) return name;
  return "";
}

Metrics read_metrics(const std::filesystem::path& file, const std::vector<std::string>& names) {
  if (!std::filesystem::exists(file)) return read_lines("", names);
  const MappedFile mapped(file);
  return read_lines({reinterpret_cast<const char*>(mapped.data()), mapped.size()}, names);
}

Metrics read_last_metrics(const std::filesystem::path& file, const std::vector<std::string>& names, int64_t most) {
  if (!std::filesystem::exists(file)) return read_lines("", names);
  const MappedFile mapped(file);
  const std::string_view text(reinterpret_cast<const char*>(mapped.data()), mapped.size());
  for (size_t bytes = size_t{1} << 15;; bytes *= 4) {
    const size_t begin = text.size() <= bytes ? 0 : text.find('\n', text.size() - bytes);
    Metrics metrics = begin == std::string_view::npos ? Metrics() : read_lines(text.substr(begin), names);
    if (begin == 0 || static_cast<int64_t>(metrics.steps.size()) >= most) return metrics;
  }
}

}  // namespace espalier::report
