// What a client gets that asked for something it cannot have.
//
// The body has "error" as OpenAI's clients read it and also "message" as Megatron's reads it.
#pragma once

#include <stdexcept>
#include <string>

#include "serve/http_server.h"

namespace espalier::serve {

class ApiError : public std::runtime_error {
 public:
  // `param`: the field that is wrong, if it is one; `code`: what programs test for ("model_not_found").
  explicit ApiError(int status, const std::string& message, std::string param = "", std::string code = "")
      : std::runtime_error(message), status_(status), param_(std::move(param)), code_(std::move(code)) {}

  int status() const { return status_; }
  HttpReply reply() const;
  // The same as the data of an event, for those who already have status 200.
  std::string event() const;

  // Seconds after which it is worth trying again; 0: it is not.
  ApiError&& retry_after(int seconds) && {
    retry_after_ = seconds;
    return std::move(*this);
  }

 private:
  int status_;
  std::string param_, code_;
  int retry_after_ = 0;
};

}  // namespace espalier::serve
