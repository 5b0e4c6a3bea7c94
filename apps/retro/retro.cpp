// espalier retro: what a Retro reads besides its samples.
#include <functional>

#include "apps/retro/commands.h"
#include "apps/tokenizer/run_tokenizer.h"
#include "base/format.h"
#include "data/data_plan.h"

namespace espalier {

const std::vector<Command>& retro_commands() {
  static const std::vector<Command> list = {
      {"build", "chunks of the training data, their index, neighbours of all samples: retro build FLAGS OF train retro",
       retro_build_main},
      {"chunks", "chunks as text or ids, for your own encoder: retro chunks FLAGS OF train retro", retro_chunks_main},
  };
  return list;
}

int retro_main(const std::vector<std::string>& arguments) {
  return run_subcommand("espalier retro", retro_commands(), arguments);
}

bool read_retro_flags(const std::vector<std::string>& arguments, OptionTable& table, config::RunConfig& config,
                      const std::function<void(OptionTable&)>& add_rows, Problems& problems) {
  config.plan_only = true;
  add_rows(table);
  config::add_options(families::retro_family(), table, config);
  if (!table.parse(arguments, problems)) return false;
  config::resolve(config, table, problems);
  const families::RetroSettings& settings = config.model.as<families::RetroSettings>();
  if (settings.workdir.empty()) problems.add("--retro-workdir is required: the folder of chunks and neighbours");
  if (!settings.shape.retrieves)
    problems.add("--retro-add-retriever is not given: without it, what is built here would not be read");
  if (problems.empty()) data::plan_data(config::data_sets(config), problems);
  return true;
}

int64_t end_of_document(const config::RunConfig& config) {
  const std::unique_ptr<text::Tokenizer> tokenizer = load_run_tokenizer(config.tokenizer);
  if (tokenizer == nullptr)
    throw UserError("the end-of-document token comes from the tokenizer: give --tokenizer-type and its files",
                    ExitCode::kUsage);
  const std::optional<int32_t> eod = tokenizer->eod();
  if (!eod)
    throw UserError("this tokenizer has no end-of-document token, with which short chunks are padded",
                    ExitCode::kBadData);
  return *eod;
}

}  // namespace espalier
