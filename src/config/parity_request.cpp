#include "config/parity_request.h"

#include <numeric>
#include <optional>

#include "base/format.h"
#include "config/family.h"

namespace espalier::config {
namespace {

std::string program_name(const ParityRequest& request) { return concat("espalier parity ", request.family->name); }
std::string summary(const ParityRequest& request) {
  return concat(
      "Repeats a training run in several layouts, all on this machine, and compares them: initial weights, samples, "
      "losses and gradient norms. Takes the options of `espalier train ",
      request.family->name, "`.");
}

void add_rows(OptionTable& table, RunConfig& config, ParityRequest& request, std::string& layouts) {
  table.group("parity");
  table
      .add("--layouts", layouts,
           "comma-separated, as in tp1pp1dp1,tp2pp1dp2sp,pp2vp2,dp4zero1; the others are compared with the first; "
           "with --device cuda all, on GPUs, with the first on the CPU")
      .required()
      .not_in_recipe()
      .common();
  table.add("--steps", request.num_steps, "steps to compare").minimum(1).maximum(1e6).not_in_recipe().common();
  table.add("--json", request.json, "one object on stdout").not_in_recipe().common();
  add_options(*request.family, table, config);
}

// The smallest batch that all layouts can train, where none is given: their defaults would differ.
std::optional<int64_t> common_batch(const RunConfig& config, const OptionTable& table, const ParityRequest& request) {
  if (config.training.global_batch_size || config.training.micro_batch_size == 0 ||
      table.find("--deepspeed_config")->given())
    return std::nullopt;
  int64_t replicas = 1;
  for (const std::string& layout : request.layouts) {
    try {
      replicas = std::lcm(replicas, plan::parse_layout(layout).grid.data);
    } catch (const UserError&) {  // reported with the other problems of its layout
    }
  }
  return config.training.micro_batch_size * replicas;
}

}  // namespace

bool read_parity_request(const std::vector<std::string>& arguments, ParityRequest& request, Problems& problems) {
  request.arguments = arguments;
  RunConfig config;
  OptionTable table(program_name(request), summary(request));
  std::string layouts;
  add_rows(table, config, request, layouts);
  if (!table.parse(arguments, problems)) return false;
  if (!table.find("--layouts")->given()) return true;  // which is a problem by now
  request.on_gpus = config.parallel.device == Device::kCuda;
  request.attention_backend = config.training.attention_backend;
  if (request.attention_backend == spec::AttentionBackend::kCudnn && !request.on_gpus)
    problems.add(table.origin("--attention-backend"),
                 " computes on a GPU, and layouts are compared on the CPU without ", "--device cuda; give it too");
  for (const std::string& layout : split(layouts, ',')) request.layouts.push_back(strip(layout));
  if (const auto batch = common_batch(config, table, request))
    for (const std::string& word : {std::string("--global-batch-size"), std::to_string(*batch)})
      request.arguments.push_back(word);
  for (const std::string& layout : request.layouts) {
    RunConfig of_layout;
    OptionTable rows(program_name(request), summary(request));
    Problems found;
    try {
      read_parity_layout(request, layout, of_layout, rows, found);
      check_files(of_layout, rows, found);
    } catch (const UserError& error) {
      found.add(error.what());
    }
    for (const std::string& message : found.messages())
      problems.add(message.starts_with("layout '") ? "" : concat("layout ", layout, ": "), message);
  }
  return true;
}

plan::Layout read_parity_layout(const ParityRequest& request, const std::string& layout_text, RunConfig& config,
                                OptionTable& table, Problems& problems) {
  ParityRequest unused{.family = request.family, .layouts = {}, .arguments = {}};
  std::string layouts;
  add_rows(table, config, unused, layouts);
  table.say_notes(false);
  const plan::Layout layout = plan::parse_layout(layout_text);
  // The number of layers may be in a recipe, so the flags are read once to know it.
  RunConfig first;
  OptionTable first_table(program_name(request), summary(request));
  Problems ignored;  // found again below
  add_rows(first_table, first, unused, layouts);
  first_table.say_notes(false);
  first_table.parse(request.arguments, ignored);
  std::vector<std::string> arguments = request.arguments;
  for (const std::string& flag : plan::layout_flags(layout, request.family->num_layers(first.model)))
    arguments.push_back(flag);
  if (!table.parse(arguments, problems)) return layout;
  config.num_ranks = layout.grid.num_ranks();
  config.checkpoint = {};
  resolve(config, table, problems);
  return layout;
}

}  // namespace espalier::config
