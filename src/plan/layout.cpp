#include "plan/layout.h"

#include <set>

#include "base/error.h"
#include "base/literal.h"
#include "plan/near_numbers.h"

namespace espalier::plan {
namespace {

constexpr const char* kParts = "tpN, cpN, ppN, dpN, vpN, zero0 to zero3, sp, zb";

[[noreturn]] void refuse(const std::string& text, const std::string& part, const std::string& why) {
  throw UserError(concat("layout '", text, "': '", part, "' ", why, "; parts are ", kParts, ", as in tp2pp1dp2sp"),
                  ExitCode::kUsage);
}

// Length of the run of characters at `begin` that are digits, or that are not.
size_t run_length(const std::string& text, size_t begin, bool digits) {
  size_t end = begin;
  while (end < text.size() && (text[end] >= '0' && text[end] <= '9') == digits) ++end;
  return end - begin;
}

}  // namespace

Layout parse_layout(const std::string& text) {
  if (text.empty()) refuse(text, "", "is empty");
  Layout layout;
  std::set<std::string> seen;
  for (size_t begin = 0; begin < text.size();) {
    const size_t letters = run_length(text, begin, false), digits = run_length(text, begin + letters, true);
    std::string name = text.substr(begin, letters);
    // Flags have no number, so that the next part may begin in the same run of letters: "sptp2".
    for (const char* flag : {"sp", "zb"})
      if (name.starts_with(flag) && name != flag) name = flag;
    const bool is_flag = name == "sp" || name == "zb";
    const size_t length = is_flag ? name.size() : letters + digits;
    const std::string part = text.substr(begin, length);
    if (!seen.insert(name).second) refuse(text, part, "comes twice");
    begin += length;
    if (name == "sp") layout.sequence_parallel = true;
    if (name == "zb") layout.zero_bubble = true;
    if (is_flag) continue;
    int64_t* target = name == "tp"     ? &layout.grid.tensor
                      : name == "cp"   ? &layout.grid.context
                      : name == "pp"   ? &layout.grid.pipeline
                      : name == "dp"   ? &layout.grid.data
                      : name == "vp"   ? &layout.num_chunks
                      : name == "zero" ? &layout.zero_stage
                                       : nullptr;
    if (target == nullptr) refuse(text, part, "is not part of a layout");
    const std::optional<int64_t> number = parse_python_int(part.substr(letters));
    const bool is_zero = name == "zero";
    if (!number || *number < (is_zero ? 0 : 1) || *number > (is_zero ? 3 : 1'000'000))
      refuse(text, part, is_zero ? "needs a stage from 0 to 3" : "needs a size from 1 to 1000000");
    *target = *number;
  }
  return layout;
}

std::string to_string(const Layout& layout) {
  std::string text = spec::to_string(layout.grid);
  if (layout.num_chunks > 1) text += concat("vp", layout.num_chunks);
  if (layout.sequence_parallel) text += "sp";
  if (layout.zero_bubble) text += "zb";
  if (layout.zero_stage > 0) text += concat("zero", layout.zero_stage);
  return text;
}

std::vector<std::string> layout_flags(const Layout& layout, int64_t num_layers) {
  const auto number = [](int64_t value) { return std::to_string(value); };
  std::vector<std::string> flags = {"--tensor-model-parallel-size",
                                    number(layout.grid.tensor),
                                    "--context-parallel-size",
                                    number(layout.grid.context),
                                    "--pipeline-model-parallel-size",
                                    number(layout.grid.pipeline),
                                    "--zero-stage",
                                    number(layout.zero_stage)};
  if (layout.sequence_parallel) flags.push_back("--sequence-parallel");
  if (layout.zero_bubble) flags.push_back("--enable-zbh1-pipeline");
  if (layout.num_chunks == 1) return flags;
  const int64_t num_parts = layout.grid.pipeline * layout.num_chunks;
  if (num_layers % num_parts != 0)
    throw UserError(
        concat("layout '", to_string(layout), "': ", num_layers, " layers do not divide into ", layout.grid.pipeline,
               " stages of ", layout.num_chunks, " chunks; use ", multiples_near(num_layers, num_parts), " layers"),
        ExitCode::kUsage);
  flags.push_back("--num-layers-per-virtual-pipeline-stage");
  flags.push_back(number(num_layers / num_parts));
  return flags;
}

}  // namespace espalier::plan
