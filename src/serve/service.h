// The server as a whole: which route answers what, and who may ask.
//
//   Service service(desk, {...});
//   service.port();
//   service.drain();                      // nobody new; what is in progress continues
//   while (!service.is_idle()) ...
//
// With a second desk its routes are those below /beside/ ("/beside/v1/completions"), with the same key and limits of
// connections. The desks, and the engines behind them, outlive it.
#pragma once

#include <memory>

#include "serve/desk.h"
#include "serve/http_server.h"

namespace espalier::serve {

class Service {
 public:
  // Listens, or throws a UserError.
  Service(Desk& desk, const HttpOptions& options, Desk* beside = nullptr);

  int port() const { return server_->port(); }
  void drain();
  // No text is under way and nobody waits for an answer.
  bool is_idle() const {
    return desk_.num_texts() == 0 && (beside_ == nullptr || beside_->num_texts() == 0) &&
           server_->num_connections() == 0;
  }
  // /health reports from now on that the model has failed.
  void fail() { has_failed_ = true; }

 private:
  void handle(HttpRequest request, std::shared_ptr<Answer> answer);
  bool answer_at_once(Desk& desk, const HttpRequest& request, Answer& answer);
  void check_access(const HttpRequest& request) const;

  Desk& desk_;
  Desk* beside_;   // null: there is one model
  bool is_local_;  // reachable from this machine only
  std::atomic<bool> has_failed_{false};
  std::unique_ptr<HttpServer> server_;
};

}  // namespace espalier::serve
