#include "launch/node_probe.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/format.h"
#include "base/host_name.h"
#include "base/thread_pool.h"
#include "launch/internal/socket.h"
#include "launch/rendezvous_client.h"
#include "launch/rendezvous_server.h"
#include "launch/secret.h"

namespace espalier::launch {
namespace {

using internal::Clock;
using internal::Descriptor;
using internal::Transfer;

constexpr auto kProbePatience = std::chrono::seconds(120);
constexpr size_t kTokenSize = 64;
constexpr int64_t kSentBytes = int64_t{64} << 20;
constexpr size_t kProbePieceBytes = size_t{1} << 20;
constexpr int kPings = 50;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Runs work(thread) on every core for that long, again and again; the sum of what the calls return, a second.
template <class Work>
double rate_of_all_cores(int num_cores, double seconds, const Work& work) {
  std::vector<double> done(static_cast<size_t>(num_cores));
  std::vector<std::thread> threads;
  const auto begin = Clock::now();
  for (int core = 0; core < num_cores; ++core)
    threads.emplace_back([&, core] {
      while (seconds_since(begin) < seconds) done[static_cast<size_t>(core)] += work();
    });
  for (std::thread& thread : threads) thread.join();
  double sum = 0;
  for (const double part : done) sum += part;
  return sum / seconds_since(begin);
}

// Sixteen chains of multiply-adds that no compiler can leave out.
double multiply_adds() {
  constexpr int kChains = 16, kTimes = 20000;
  float chains[kChains];
  std::fill_n(chains, kChains, 1.0F);
  for (int times = 0; times < kTimes; ++times)
    for (float& chain : chains) chain = chain * 0.999F + 0.001F;
  volatile float sink = 0;
  for (const float chain : chains) sink = sink + chain;
  return static_cast<double>(kChains) * kTimes;
}

double copied_bytes() {
  constexpr size_t kBytes = size_t{16} << 20;
  thread_local std::vector<char> from(kBytes, 1), to(kBytes, 2);
  std::memcpy(to.data(), from.data(), kBytes);
  volatile char sink = to[kBytes / 2];
  (void)sink;
  return 2.0 * kBytes;
}

double available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:")) return 1024 * std::strtod(line.c_str() + 13, nullptr);
  return 0;
}

// Answers the others: 'p' with this machine's time, 'b' and bytes with a byte once all have come.
class Responder {
 public:
  explicit Responder(std::string token)
      : token_(std::move(token)), listener_(internal::listen_on("", 0)), thread_([this] { serve(); }) {}
  ~Responder() {
    ends_ = true;
    thread_.join();
    for (std::thread& thread : answering_) thread.join();
  }
  int port() const { return internal::port_of(listener_); }

 private:
  void serve() {
    while (!ends_) {
      pollfd ready = {listener_.get(), POLLIN, 0};
      if (::poll(&ready, 1, 50) <= 0) continue;
      const int connection = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (connection >= 0)
        answering_.emplace_back([this, socket = std::make_shared<Descriptor>(connection)] { answer(socket->get()); });
    }
  }
  void answer(int socket) const {
    internal::prepare_connection(socket);
    const auto deadline = Clock::now() + kProbePatience;
    char token[kTokenSize], command = 0;
    if (internal::receive_all(socket, token, kTokenSize, Clock::now() + std::chrono::seconds(10)) != Transfer::kDone ||
        std::string_view(token, kTokenSize) != token_)
      return;
    std::vector<char> piece(kProbePieceBytes);
    while (internal::receive_all(socket, &command, 1, deadline) == Transfer::kDone) {
      if (command == 'b')
        for (int64_t got = 0; got < kSentBytes; got += static_cast<int64_t>(kProbePieceBytes))
          if (internal::receive_all(socket, piece.data(), kProbePieceBytes, deadline) != Transfer::kDone) return;
      const double now = wall_seconds();
      if (internal::send_all(socket, {reinterpret_cast<const char*>(&now), sizeof now}, deadline) != Transfer::kDone)
        return;
    }
  }

  const std::string token_;
  const Descriptor listener_;
  std::atomic<bool> ends_{false};
  std::vector<std::thread> answering_;
  std::thread thread_;
};

struct Exchange {
  double latency = 0, seconds_ahead = 0, bytes_per_second = 0;
};

class Asker {
 public:
  Asker(const std::string& place, const std::string& token) {
    const size_t colon = place.rfind(':');
    std::string reason;
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    socket_ = internal::try_to_connect(place.substr(0, colon), std::stoi(place.substr(colon + 1)), deadline, reason);
    if (!socket_.valid())
      throw UserError(concat("cannot reach another machine of the job at ", place, ": ", reason), ExitCode::kLostPeer);
    internal::prepare_connection(socket_.get());
    send(token);
  }
  Exchange ping() {
    Exchange best{.latency = 1e9};
    for (int tries = 0; tries < kPings; ++tries) {
      const double wall = wall_seconds();
      const auto begin = Clock::now();
      send("p");
      const double there = receive();
      const double latency = seconds_since(begin);
      if (latency < best.latency) best = {.latency = latency, .seconds_ahead = wall + latency / 2 - there};
    }
    return best;
  }
  double bytes_per_second() {
    const std::string piece(kProbePieceBytes, 'x');
    const auto begin = Clock::now();
    send("b");
    for (int64_t sent = 0; sent < kSentBytes; sent += static_cast<int64_t>(kProbePieceBytes)) send(piece);
    receive();
    return static_cast<double>(kSentBytes) / seconds_since(begin);
  }

 private:
  void send(std::string_view data) {
    if (internal::send_all(socket_.get(), data, Clock::now() + kProbePatience) != Transfer::kDone) lost();
  }
  double receive() {
    double value = 0;
    if (internal::receive_all(socket_.get(), reinterpret_cast<char*>(&value), sizeof value,
                              Clock::now() + kProbePatience) != Transfer::kDone)
      lost();
    return value;
  }
  [[noreturn]] static void lost() {
    throw UserError("another machine of the job is gone, or does not answer", ExitCode::kLostPeer);
  }
  Descriptor socket_;
};

std::string key(const char* what, int64_t rank) { return concat("node_probe/", what, "/", rank); }

nlohmann::json to_json(const NodeReport& report) {
  nlohmann::json gpus = nlohmann::json::array();
  for (const GpuInfo& gpu : report.gpus.gpus) gpus.push_back({gpu.name, gpu.memory_bytes, gpu.used_bytes});
  return {{"rank", report.rank},
          {"host", report.host},
          {"cores", report.num_cores},
          {"compute", report.compute_per_second},
          {"memory", report.memory_bytes_per_second},
          {"free_memory", report.free_memory_bytes},
          {"free_disk", report.free_disk_bytes},
          {"disk", report.disk},
          {"trouble", report.trouble},
          {"ahead", report.seconds_ahead},
          {"latency", report.latency_seconds},
          {"send", report.send_bytes_per_second},
          {"gpus", gpus},
          {"driver", report.gpus.driver},
          {"gpu_trouble", report.gpus.trouble}};
}

NodeReport from_json(const nlohmann::json& text) {
  GpuInventory gpus{.driver = text.at("driver"), .gpus = {}, .trouble = text.at("gpu_trouble")};
  for (const nlohmann::json& gpu : text.at("gpus")) gpus.gpus.push_back({gpu.at(0), gpu.at(1), gpu.at(2)});
  return {.rank = text.at("rank"),
          .host = text.at("host"),
          .num_cores = text.at("cores"),
          .compute_per_second = text.at("compute"),
          .memory_bytes_per_second = text.at("memory"),
          .free_memory_bytes = text.at("free_memory"),
          .free_disk_bytes = text.at("free_disk"),
          .disk = text.at("disk"),
          .trouble = text.at("trouble"),
          .seconds_ahead = text.at("ahead"),
          .latency_seconds = text.at("latency"),
          .send_bytes_per_second = text.at("send"),
          .gpus = std::move(gpus)};
}

}  // namespace

std::vector<NodeReport> probe_nodes(const RankEnvironment& place, const std::vector<NodeFolder>& folders,
                                    double seconds_each) {
  const std::string secret = job_secret(place.run_id);
  std::unique_ptr<RendezvousServer> server;
  int port = place.master_port;
  if (place.rank == 0 && !place.launcher_store) {
    server = std::make_unique<RendezvousServer>(
        RendezvousServer::Options{place.world_size == 1 ? "127.0.0.1" : "", port, secret});
    port = server->port();
  }
  RendezvousClient store(RendezvousClient::Options{place.master_address, port, secret});
  const int64_t size = place.world_size, next = (place.rank + 1) % size;
  if (place.rank == 0) store.set("node_probe/token", new_secret().substr(0, kTokenSize));
  const std::string token = store.get("node_probe/token", kProbePatience);
  ESPALIER_CHECK(token.size() == kTokenSize, token.size());
  Responder responder(token);
  const std::string host = full_host_name();
  store.set(key("place", place.rank), concat(place.one_machine ? "127.0.0.1" : host, ":", responder.port()));
  const auto meet = [&](const char* what) {
    store.set(key(what, place.rank), "1");
    std::vector<std::string> all;
    for (int64_t rank = 0; rank < size; ++rank) all.push_back(key(what, rank));
    store.wait(all, kProbePatience);
  };

  NodeReport report{.rank = place.rank, .host = host_name(), .num_cores = num_usable_cores()};
  report.free_memory_bytes = available_memory();
  report.gpus = list_gpus();
  report.free_disk_bytes = 1e30;
  for (const NodeFolder& folder : folders)
    if (!folder.trouble.empty() || (report.trouble.empty() && folder.free_bytes < report.free_disk_bytes)) {
      report.free_disk_bytes = folder.free_bytes;
      report.disk = folder.folder, report.trouble = folder.trouble;
    }
  meet("begin");
  const auto cores = static_cast<int>(report.num_cores);
  report.compute_per_second = rate_of_all_cores(cores, seconds_each, multiply_adds);
  meet("computed");
  report.memory_bytes_per_second = rate_of_all_cores(cores, seconds_each, copied_bytes);
  meet("copied");
  if (size > 1) {
    Asker neighbour(store.get(key("place", next), kProbePatience), token);
    report.latency_seconds = neighbour.ping().latency;
    report.seconds_ahead =
        place.rank == 0 ? 0 : Asker(store.get(key("place", 0), kProbePatience), token).ping().seconds_ahead;
    meet("asked");
    report.send_bytes_per_second = neighbour.bytes_per_second();
  }
  store.set(key("report", place.rank), to_json(report).dump());
  meet("reported");
  std::vector<NodeReport> reports;
  for (int64_t rank = 0; place.rank == 0 && rank < size; ++rank)
    reports.push_back(from_json(nlohmann::json::parse(store.get(key("report", rank), kProbePatience))));
  meet("read");
  // The store lives as long as anyone asks it.
  for (int tries = 0; server && server->num_clients() > 1 && tries < 1000; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return reports;
}

}  // namespace espalier::launch
