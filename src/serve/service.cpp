#include "serve/service.h"

#include <algorithm>
#include <boost/asio/post.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"
#include "base/version.h"
#include "serve/playground_files.h"
#include "serve/routes.h"
#include "web/server.h"

namespace espalier::serve {
namespace {

struct Route {
  const char* methods;  // first what to use
  const char* path;
  void (*run)(const Call&);
};

constexpr Route kRoutes[] = {
    {"POST", "/v1/completions", openai_completion},
    {"POST", "/v1/chat/completions", openai_chat},
    {"GET HEAD", "/v1/models", openai_models},
    {"PUT POST", "/api", megatron_generate},
    {"POST", "/tokenize", tokenize},
    {"POST", "/detokenize", detokenize},
    {"GET HEAD", "/tokenizer_info", tokenizer_info},
    {"POST", "/retrieve", retrieve_passages},
};
// Answered by the thread of the connections itself, whatever else goes on.
constexpr const char* kQuickPaths[] = {"/health", "/ready", "/version", "/metrics"};

bool allows(const std::string& methods, const std::string& method) {
  return (" " + methods + " ").find(" " + method + " ") != std::string::npos;
}

const Route* route_of(const std::string& path) {
  for (const Route& route : kRoutes)
    if (path == route.path) return &route;
  return path.starts_with("/v1/models/") ? &kRoutes[2] : nullptr;
}

bool is_quick(const std::string& path) {
  return std::find(std::begin(kQuickPaths), std::end(kQuickPaths), path) != std::end(kQuickPaths);
}

std::string all_paths() {
  std::vector<std::string> paths;
  for (const Route& route : kRoutes) paths.push_back(route.path);
  paths.insert(paths.end(), std::begin(kQuickPaths), std::end(kQuickPaths));
  return join(paths, ", ");
}

// Counts the reply that goes through it.
class CountedAnswer final : public Answer {
 public:
  CountedAnswer(std::shared_ptr<Answer> answer, Metrics& metrics, std::string route)
      : answer_(std::move(answer)), metrics_(metrics), route_(std::move(route)) {}
  void reply(HttpReply reply) override {
    metrics_.count(route_, reply.status);
    answer_->reply(std::move(reply));
  }
  void begin_events() override {
    metrics_.count(route_, 200);
    answer_->begin_events();
  }
  void send_event(const std::string& data) override { answer_->send_event(data); }
  void end_events() override { answer_->end_events(); }
  void on_gone(std::function<void()> callback) override { answer_->on_gone(std::move(callback)); }

 private:
  std::shared_ptr<Answer> answer_;
  Metrics& metrics_;
  std::string route_;
};

// A file of the playground; null if there is none of this path.
const std::pair<const std::string, std::string>* playground_file(const std::string& path) {
  const auto file = playground_files().find(path == "/" ? "index.html" : path.substr(std::min<size_t>(1, path.size())));
  return file == playground_files().end() ? nullptr : &*file;
}

HttpReply page_reply(const std::pair<const std::string, std::string>& file) {
  const char* const type = file.first.ends_with(".html")  ? "text/html; charset=utf-8"
                           : file.first.ends_with(".css") ? "text/css; charset=utf-8"
                                                          : "text/javascript; charset=utf-8";
  return {.type = type,
          .body = file.second,
          .headers = {{"Content-Security-Policy", "default-src 'self'; img-src data:; frame-ancestors 'none'"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}}};
}

}  // namespace

void answer_errors(const char* what, Answer& answer, const std::function<void()>& work) {
  try {
    work();
  } catch (const ApiError& error) {
    answer.reply(error.reply());
  } catch (const UserError& error) {
    answer.reply(ApiError(400, error.what()).reply());
  } catch (const std::exception& error) {
    log_warning(what, ": ", error.what());
    answer.reply(ApiError(500, "the server failed on this request; its log says why").reply());
  }
}

void reply_json(const Call& call, const nlohmann::ordered_json& json) {
  call.answer->reply({.body = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)});
}

Service::Service(Desk& desk, const HttpOptions& options, Desk* beside)
    : desk_(desk),
      beside_(beside),
      is_local_(options.host == "localhost" || options.host == "::1" || options.host.starts_with("127.")) {
  server_ = std::make_unique<HttpServer>(
      options,
      [this](HttpRequest request, std::shared_ptr<Answer> answer) { handle(std::move(request), std::move(answer)); },
      [&desk](int status, const std::string& message) {
        desk.metrics.count("none", status);
        return ApiError(status, message).reply();
      });
}

void Service::drain() {
  desk_.drain();
  if (beside_ != nullptr) beside_->drain();
  server_->drain();
}

// A foreign page in a browser on this machine could reach a local server by a name that its owner points here.
void Service::check_access(const HttpRequest& request) const {
  if (!desk_.options.api_key.empty()) {
    const std::string scheme = "Bearer ";
    if (!request.authorization.starts_with(scheme) ||
        !web::equal_in_constant_time(request.authorization.substr(scheme.size()), desk_.options.api_key))
      throw ApiError(401, "this server requires the header 'Authorization: Bearer KEY' with the right key", "",
                     "invalid_api_key");
  } else if (is_local_ && !request.host.empty() && !web::is_own_host(request.host, {})) {
    throw ApiError(403, "the Host header does not name one of this machine's addresses");
  }
}

bool Service::answer_at_once(Desk& desk, const HttpRequest& request, Answer& answer) {
  const bool is_read = allows("GET HEAD", request.method);
  if (is_read && (request.path == "/health" || request.path == "/ready")) {
    if (has_failed_)
      answer.reply(ApiError(500, "the model has failed").reply());
    else if (request.path == "/ready" && desk.is_draining())
      answer.reply(ApiError(503, "the server is shutting down").reply());
    else
      answer.reply({.body = R"({"status":"ok"})"});
    return true;
  }
  // The page holds nothing of the model: whoever opens it gives the key there.
  if (const auto* file = is_read ? playground_file(request.path) : nullptr) {
    answer.reply(page_reply(*file));
    return true;
  }
  check_access(request);
  if (is_read && request.path == "/version") {
    answer.reply({.body = nlohmann::json{{"version", kVersion}}.dump()});
    return true;
  }
  if (is_read && request.path == "/metrics") {
    answer.reply({.type = "text/plain; version=0.0.4; charset=utf-8",
                  .body = desk.metrics.text(desk.engine.counters(), desk.num_texts(), server_->num_connections())});
    return true;
  }
  return false;
}

void Service::handle(HttpRequest request, std::shared_ptr<Answer> answer) {
  const std::string beside = "/beside";
  const bool is_beside = beside_ != nullptr && request.path.starts_with(beside + "/");
  if (is_beside) request.path.erase(0, beside.size());
  Desk& desk = is_beside ? *beside_ : desk_;
  const Route* const route = route_of(request.path);
  answer = std::make_shared<CountedAnswer>(std::move(answer), desk.metrics,
                                           route != nullptr         ? route->path
                                           : is_quick(request.path) ? request.path
                                                                    : "none");
  try {
    if (answer_at_once(desk, request, *answer)) return;
    if (route == nullptr)
      throw ApiError(404, concat("there is nothing at ", request.path.substr(0, 128), "; there are ", all_paths()));
    if (!allows(route->methods, request.method))
      throw ApiError(405, std::string(route->path) + " takes " + route->methods);
  } catch (const ApiError& error) {
    return answer->reply(error.reply());
  }
  const Generation::Strand strand(desk.pool.get_executor());
  boost::asio::post(strand, [&desk, route, strand, answer = std::move(answer),
                             request = std::make_shared<HttpRequest>(std::move(request))] {
    answer_errors(route->path, *answer,
                  [&] { route->run({.desk = desk, .request = *request, .answer = answer, .strand = strand}); });
  });
}

}  // namespace espalier::serve
