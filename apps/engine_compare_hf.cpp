#include "engine_compare_hf.h"

#include <algorithm>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/options.h"
#include "infer/compare_logits.h"

namespace espalier {

int compare_hf(const std::vector<std::string>& arguments) {
  std::string step, folder;
  infer::Conversion conversion = infer::Conversion::kImport;
  OptionTable table("espalier-engine compare-hf", "Compares the logits of a checkpoint and of a Hugging Face folder.");
  table.add("--step", step, "step folder").required();
  table.add("--hf", folder, "Hugging Face folder").required();
  table.add_choice("--conversion", conversion,
                   {{"import", infer::Conversion::kImport}, {"export", infer::Conversion::kExport}},
                   "which was made from the other");
  const auto dashes = std::find(arguments.begin(), arguments.end(), "--");
  if (!table.parse({arguments.begin(), dashes})) return 0;
  infer::ComparedModel model{.conversion = conversion};
  if (dashes != arguments.end()) model.options.assign(dashes + 1, arguments.end());
  const infer::LogitsComparison found = infer::compare_logits(step, folder, model);
  const std::string figures =
      concat("largest difference ", format_printf("%.3g", found.largest_difference), " of logits up to ",
             format_printf("%.3g", found.largest_logit), ", ", found.num_tokens, " tokens");
  if (!found.equal())
    throw UserError(
        concat("the logits differ: ", figures, ", expected at most ", format_printf("%.3g", found.tolerance)),
        ExitCode::kBadData);
  log_info("the logits are equal: ", figures);
  if (!found.not_reached.empty())
    log_info("these tokens do not reach ", join(found.not_reached, " and "), ": that was not compared");
  return 0;
}

}  // namespace espalier
