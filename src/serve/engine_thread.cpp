#include "serve/engine_thread.h"

namespace espalier::serve {

EngineThread::EngineThread(infer::Engine& engine, std::function<void(std::exception_ptr)> failed,
                           std::function<void()> begin)
    : engine_(engine), failed_(std::move(failed)), begin_(std::move(begin)), thread_([this] { run(); }) {}

EngineThread::~EngineThread() {
  stops_ = true;
  engine_.wake();
  thread_.join();
}

void EngineThread::run() {
  constexpr auto kLook = std::chrono::minutes(10);  // requests and the end wake it
  try {
    if (begin_) begin_();
    while (!stops_)
      if (!engine_.step()) engine_.wait(kLook);
  } catch (const std::exception&) {
    failed_(std::current_exception());
  }
}

}  // namespace espalier::serve
