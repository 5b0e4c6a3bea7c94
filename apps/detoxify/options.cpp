#include "apps/detoxify/options.h"

namespace espalier {

void add_scorer_rows(OptionTable& table, eval::ScoringPlan& plan) {
  table.add("--scorer", plan.scorer, "command that scores, for /bin/sh").value_name("COMMAND").required();
  table.add("--workers", plan.processes, "processes of it that run at once").minimum(1).maximum(1024);
  table.add("--batch-size", plan.batch_size, "texts that a process has at once").minimum(1).maximum(1 << 20);
  table
      .add("--answer-seconds", plan.answer_seconds,
           "seconds without an answer, after which a process is killed and restarted")
      .minimum(0.001)
      .maximum(1e6);
  table
      .add("--restarts", plan.num_restarts,
           "failures of a process in a row, without an answer between them, after which it is given up")
      .minimum(0)
      .maximum(1000);
}

void add_attribute(OptionTable& table, std::string& attribute) {
  table.add("--attribute", attribute, "which of a text's scores says how toxic it is").value_name("NAME");
}

void add_filter_rows(OptionTable& table, eval::FilterPlan& plan) {
  table.add("--keep", plan.share, "share of all lines that is kept").minimum(0).maximum(1);
  add_attribute(table, plan.attribute);
  table.add("--seed", plan.seed, "of the order in which they are written").minimum(0).maximum(UINT32_MAX);
}

}  // namespace espalier
