#include <chrono>
#include <cstdio>
#include <thread>

#include "apps/runs/commands.h"
#include "apps/runs/page.h"
#include "base/log.h"
#include "base/options.h"
#include "base/stop_signals.h"

namespace espalier {

int runs_serve_main(const std::vector<std::string>& arguments) {
  constexpr auto kLook = std::chrono::milliseconds(100);
  std::vector<std::string> folders;
  web::ServerOptions options;
  int64_t port = 0;
  OptionTable table("espalier runs serve",
                    "Shows runs in a browser: a page with their curves, options and events, which follows them while "
                    "they train. It only reads, and prints an address that nobody can guess.");
  table.positional("FOLDER", folders, "run folders, or folders of run folders; the current one by default", 0,
                   SIZE_MAX);
  table.add("--port", port, "port to listen on; 0: any free one").minimum(0).maximum(65535);
  table.add("--host", options.host, "address to listen on; 0.0.0.0 lets other machines in, without encryption");
  if (!table.parse(arguments)) return 0;
  if (folders.empty()) folders.push_back(".");
  options.port = static_cast<int>(port);
  report::find_runs(folders);  // says what does not exist before anything is served
  const StopSignals signals;
  set_awaited("the replies under way");
  RunsPage page(folders);
  const web::Server server(options, [&](const web::Request& request) { return page.reply(request); });
  std::printf("%s\n", server.url().c_str());
  std::fflush(stdout);
  log_info("serving until Ctrl-C");
  page.read_ahead([&] { return signals.received().has_value(); });
  while (!signals.received()) std::this_thread::sleep_for(kLook);
  return 0;
}

}  // namespace espalier
