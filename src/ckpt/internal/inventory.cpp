#include "ckpt/internal/inventory.h"

#include <ATen/ATen.h>

#include <cstdlib>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "ckpt/dtype.h"

namespace espalier::ckpt {
namespace {

std::vector<int64_t> numbers(const std::string& text) {
  std::vector<int64_t> values;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) values.push_back(std::strtoll(part.c_str(), nullptr, 10));
  return values;
}

plan::ExtentPattern pattern_of(const std::string& text) {
  plan::ExtentPattern pattern;
  const std::vector<int64_t> values = numbers(text);
  for (size_t i = 0; i + 2 < values.size(); i += 3) pattern.push_back({values[i], values[i + 1], values[i + 2]});
  return pattern;
}

}  // namespace

std::string describe_part(const std::string& name, const std::string& file, const at::Tensor& value,
                          const std::optional<TensorPart>& part) {
  ESPALIER_CHECK(name.find_first_of("\t\n") == std::string::npos, name);
  const TensorPart held = part_of(name, value, part);
  std::ostringstream line;
  line << name << '\t' << file << '\t' << store::to_string(dtype_of(value.scalar_type())) << '\t';
  const char* separator = "";
  for (const int64_t size : held.global_shape) line << std::exchange(separator, ",") << size;
  line << '\t';
  separator = "";
  for (const plan::ExtentRun& run : plan::to_pattern(held.extents))
    line << std::exchange(separator, ",") << run.gap << ',' << run.count << ',' << run.repeat;
  line << '\n';
  return line.str();
}

Inventory::Inventory(const std::vector<std::string>& parts, int64_t own_rank) {
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    std::istringstream lines(parts[rank]);
    size_t number = 0;
    for (std::string line; std::getline(lines, line); ++number) {
      const size_t tensor = add(line, static_cast<int64_t>(rank));
      if (static_cast<int64_t>(rank) == own_rank) own_.emplace(tensor, number);
    }
  }
}

size_t Inventory::add(const std::string& line, int64_t rank) {
  std::vector<std::string> fields;
  std::istringstream text(line);
  for (std::string field; std::getline(text, field, '\t');) fields.push_back(field);
  fields.resize(5);  // an empty last field is not seen
  const auto dtype = store::dtype_from_string(fields[2]);
  ESPALIER_CHECK(dtype, line);
  const store::TensorFacts facts{fields[0], fields[1], *dtype, numbers(fields[3])};
  const auto [found, is_new] = index_.emplace(facts.name, facts_.size());
  if (is_new) {
    facts_.push_back(facts);
    saved_.push_back({facts.name, facts.num_elements(), store::size_bytes(facts.dtype), {}});
  }
  const store::TensorFacts& known = facts_[found->second];
  ESPALIER_CHECK(known.file == facts.file && known.dtype == facts.dtype && known.shape == facts.shape, facts.name,
                 " is ", store::describe(facts.dtype, facts.shape), " for ", facts.file, " on rank ", rank, ", ",
                 store::describe(known.dtype, known.shape), " for ", known.file, " before");
  std::vector<plan::Holder>& holders = saved_[found->second].holders;
  ESPALIER_CHECK(holders.empty() || holders.back().rank != rank, facts.name, " twice on rank ", rank);
  holders.push_back({rank, pattern_of(fields[4])});
  return found->second;
}

}  // namespace espalier::ckpt
