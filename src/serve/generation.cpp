#include "serve/generation.h"

#include <algorithm>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "base/error.h"
#include "infer/engine/check_request.h"

namespace espalier::serve {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int64_t num_texts(const infer::Request& row) {
  return needs_engine(row) ? std::max({row.n, row.best_of, row.beam_width}) : 0;
}

}  // namespace

bool needs_engine(const infer::Request& request) { return request.max_tokens != 0 || request.score_from.has_value(); }

void Generation::start(Desk& desk, const std::shared_ptr<Answer>& answer, const Strand& strand,
                       std::vector<infer::Request> rows, OnEvent on_event, OnEnd on_end) {
  int64_t num_places = 0;
  for (const infer::Request& row : rows) {
    desk.check_length(row);
    if (!needs_engine(row)) continue;
    try {
      infer::check_request(row, desk.engine.limits());
    } catch (const UserError& error) {
      throw ApiError(400, error.what());
    }
    num_places += num_texts(row);
  }
  desk.enter(num_places);
  const std::shared_ptr<Generation> self(new Generation(desk, strand));
  self->num_places_ = num_places;
  self->on_event_ = std::move(on_event);
  self->on_end_ = std::move(on_end);
  self->num_open_ = rows.size();
  desk.keep(self);
  self->submit(std::move(rows));
  self->limit_time();
  // Weak: the connection outlives many requests.
  answer->on_gone([weak = self->weak_from_this(), strand, &desk] {
    desk.metrics.add_gone();
    boost::asio::post(strand, [weak] {
      const std::shared_ptr<Generation> held = weak.lock();
      if (!held) return;
      held->is_gone_ = true;
      held->cancel();
    });
  });
}

void Generation::submit(std::vector<infer::Request> rows) {
  for (size_t row = 0; row < rows.size(); ++row) {
    // Weak: where the model has failed, the engine keeps its requests longer than the desk lives.
    const auto pass_on = [weak = weak_from_this(), row](const infer::Event& event) {
      if (const std::shared_ptr<Generation> self = weak.lock())
        boost::asio::post(self->strand_, [self, row, event] { self->take(row, event); });
    };
    if (needs_engine(rows[row]))
      requests_.push_back(desk_.engine.submit(std::move(rows[row]), pass_on));
    else
      pass_on({.finish = infer::Finish{}, .is_last = true});
  }
}

void Generation::limit_time() {
  deadline_.expires_after(desk_.options.request_limit);
  deadline_.async_wait(
      boost::asio::bind_executor(strand_, [weak = weak_from_this()](boost::system::error_code stopped) {
        const std::shared_ptr<Generation> self = weak.lock();
        if (stopped || !self || self->num_open_ == 0) return;
        const auto seconds = std::chrono::duration<double>(self->desk_.options.request_limit).count();
        self->error_.emplace(504, concat("the request took longer than the limit of ", seconds, " seconds"));
        self->cancel();
      }));
}

void Generation::cancel() {
  for (const uint64_t request : requests_) desk_.engine.cancel(request);
}

void Generation::take(size_t row, const infer::Event& event) {
  if (!has_begun_ && !event.tokens.empty()) {
    has_begun_ = true;
    desk_.metrics.add_seconds_to_first_token(seconds_since(start_));
  }
  if (event.finish && event.finish->reason == infer::FinishReason::kFailed && !error_) {
    error_.emplace(500, event.finish->message);
    cancel();
  }
  if (!is_gone_ && !error_) on_event_(row, event);
  if (event.is_last && --num_open_ == 0) end();
}

void Generation::end() {
  deadline_.cancel();
  desk_.leave(num_places_);
  desk_.metrics.add_seconds(seconds_since(start_));
  if (!is_gone_) on_end_(error_);
  on_event_ = nullptr;  // they hold the answer
  on_end_ = nullptr;
  desk_.let_go(shared_from_this());
}

}  // namespace espalier::serve
