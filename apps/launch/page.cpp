#include "apps/launch/page.h"

#include <filesystem>

#include "apps/launch/launched_run.h"
#include "apps/runs/page.h"
#include "base/error.h"
#include "base/log.h"
#include "web/server.h"

namespace espalier {

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
  served_ = std::make_unique<Served>(server, save_folder_of(words, "--page"));
  log_info("page of this run: ", served_->server.url());
}

LaunchedPage::~LaunchedPage() = default;

}  // namespace espalier
