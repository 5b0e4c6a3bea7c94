#include "launch_page.h"

#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "config/run_config.h"
#include "families/registry.h"
#include "runs_page.h"
#include "web/server.h"

namespace espalier {
namespace {

// Of `train FAMILY ...`.
std::string save_folder(const std::vector<std::string>& words) {
  const config::Family* family = words.size() > 1 && words[0] == "train" ? families::find_family(words[1]) : nullptr;
  if (family == nullptr)
    throw UserError("--page shows a training run (train gpt ...), and the ranks run something else", ExitCode::kUsage);
  config::RunConfig run;
  OptionTable table("", "");
  table.say_notes(false);
  Problems ignored;  // the check of the command has reported them
  config::read_run(*family, {words.begin() + 2, words.end()}, run, table, ignored);
  if (run.checkpoint.save.empty())
    throw UserError("--page shows what a run writes into its folder, and this one has none: give --save FOLDER",
                    ExitCode::kUsage);
  return run.checkpoint.save;
}

}  // namespace

struct LaunchedPage::Served {
  Served(const web::ServerOptions& options, const std::string& save)
      : folder(std::filesystem::absolute(save)), page({folder.string()}), server(options, [this](const auto& request) {
          // Until the first rank has made the folder there is no run.
          if (request.path == "api/runs" && !std::filesystem::exists(folder)) return web::Reply{.body = "[]"};
          return page.reply(request);
        }) {}
  std::filesystem::path folder;
  RunsPage page;
  web::Server server;
};

LaunchedPage::LaunchedPage(const launch::PageOptions& options, const std::vector<std::string>& words) {
  web::ServerOptions server;
  server.host = options.host;
  server.port = options.port;
  served_ = std::make_unique<Served>(server, save_folder(words));
  log_info("page of this run: ", served_->server.url());
}

LaunchedPage::~LaunchedPage() = default;

}  // namespace espalier
