// Drives an engine in a thread of its own until it is told to stop.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

#include "infer/engine/engine.h"

namespace espalier::serve {

class EngineThread {
 public:
  // `failed` is called by that thread with what the model throws; the engine stands still then. `begin`, if any, is the
  // first thing that it does.
  EngineThread(infer::Engine& engine, std::function<void(std::exception_ptr)> failed,
               std::function<void()> begin = nullptr);
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

 private:
  void run();

  infer::Engine& engine_;
  std::function<void(std::exception_ptr)> failed_;
  std::function<void()> begin_;
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

}  // namespace espalier::serve
