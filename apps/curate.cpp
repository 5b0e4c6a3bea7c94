// espalier curate: raw text to the documents of a training mix.
#include "commands.h"
#include "curate_commands.h"

namespace espalier {

// In the order in which the help shows them.
const std::vector<Command>& curate_commands() {
  static const std::vector<Command> list = {
      {"run", "a whole recipe: curate run RECIPE.toml, or curate RECIPE.toml", curate_run_main},
      {"step", "one step over JSONL files: curate step NAME --input F... --output G", curate_step_main},
      {"why", "what happened to a document: curate why FOLDER --document X", curate_why_main},
      {"forget", "remove documents from a finished curation: curate forget FOLDER --document X", curate_forget_main},
      {"index", "an index of texts: curate index --input F... --output DIR", curate_index_main},
      {"find", "whether a text is in an index, and where: curate find DIR TEXT", curate_find_main},
  };
  return list;
}

int curate_main(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && arguments[0].ends_with(".toml")) return curate_run_main(arguments);
  return run_subcommand("espalier curate", curate_commands(), arguments);
}

}  // namespace espalier
