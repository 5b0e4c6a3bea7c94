#include "serve/api_error.h"

#include <nlohmann/json.hpp>

namespace espalier::serve {
namespace {

const char* type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

nlohmann::ordered_json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
}

}  // namespace

std::string ApiError::event() const {
  const nlohmann::ordered_json body = {{"message", what()},
                                       {"error",
                                        {{"message", what()},
                                         {"type", type_of(status_)},
                                         {"param", text_or_null(param_)},
                                         {"code", text_or_null(code_)}}}};
  return body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

HttpReply ApiError::reply() const {
  HttpReply reply{.status = status_, .type = "application/json", .body = event()};
  if (status_ == 401) reply.headers.push_back({"WWW-Authenticate", "Bearer"});
  if (retry_after_ > 0) reply.headers.push_back({"Retry-After", std::to_string(retry_after_)});
  if (status_ >= 500 && retry_after_ == 0) reply.headers.push_back({"x-should-retry", "false"});
  return reply;
}

}  // namespace espalier::serve
