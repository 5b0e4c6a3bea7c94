// The texts that one HTTP request asks for, from their admission to their end.
//
// Everything happens in the request's own strand of the desk's pool. The client's leaving and the time's end cancel
// what still runs, and the places are given back when the engine has let go of it.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "serve/desk.h"

namespace espalier::serve {

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  using Strand = boost::asio::strand<boost::asio::thread_pool::executor_type>;
  using OnEvent = std::function<void(size_t row, const infer::Event& event)>;
  // The last call, with what went wrong if something did; none where the client has gone.
  using OnEnd = std::function<void(const std::optional<ApiError>& error)>;

  // Begins all rows, or none and throws an ApiError. Rows whose max_tokens is 0 and that have nothing to score get
  // their end without the engine.
  static void start(Desk& desk, const std::shared_ptr<Answer>& answer, const Strand& strand,
                    std::vector<infer::Request> rows, OnEvent on_event, OnEnd on_end);

 private:
  Generation(Desk& desk, const Strand& strand) : desk_(desk), strand_(strand), deadline_(strand) {}
  void submit(std::vector<infer::Request> rows);
  void take(size_t row, const infer::Event& event);
  void limit_time();
  void cancel();
  void end();

  Desk& desk_;
  Strand strand_;
  boost::asio::steady_timer deadline_;
  OnEvent on_event_;
  OnEnd on_end_;
  std::vector<uint64_t> requests_;
  int64_t num_places_ = 0;
  size_t num_open_ = 0;
  bool is_gone_ = false, has_begun_ = false;
  std::optional<ApiError> error_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// Whether there is anything for the engine to do.
bool needs_engine(const infer::Request& request);

}  // namespace espalier::serve
