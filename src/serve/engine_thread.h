// Drives an engine in a thread of its own until it is told to stop.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "infer/engine/engine.h"

namespace espalier::serve {

class EngineThread {
 public:
  // `failed` is called by that thread if the model throws; the engine stands still then. `begin`, if any, is the first
  // thing that it does.
  EngineThread(infer::Engine& engine, std::function<void(const std::string& why)> failed,
               std::function<void()> begin = nullptr);
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

 private:
  void run();

  infer::Engine& engine_;
  std::function<void(const std::string&)> failed_;
  std::function<void()> begin_;
  std::atomic<bool> stops_{false};
  std::thread thread_;
};

}  // namespace espalier::serve
