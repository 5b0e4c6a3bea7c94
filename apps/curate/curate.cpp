// espalier curate: raw text to the documents of a training mix.
#include <filesystem>

#include "apps/commands.h"
#include "apps/curate/commands.h"
#include "base/error.h"

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
  std::error_code error;
  if (!arguments.empty() && std::filesystem::is_regular_file(arguments[0], error))
    throw UserError(
        concat("'", arguments[0], "' is a file, and a recipe of curate is in TOML: espalier curate FILE.toml, or ",
               "curate run FILE where the name does not end so"),
        ExitCode::kUsage);
  return run_subcommand("espalier curate", curate_commands(), arguments);
}

}  // namespace espalier
