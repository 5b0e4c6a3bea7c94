#include "dist/local_ranks.h"

#include <ATen/Parallel.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include "base/error.h"
#include "base/temporary_folder.h"

namespace espalier::dist {
namespace {

using Clock = std::chrono::steady_clock;

struct Child {
  pid_t process = -1;
  int pipe = -1;  // what it reports: one byte ('+' result, '!' error), then the text
  std::string output;
  bool ended_well = false;  // by itself, with exit code 0: the report is whole
  bool open() const { return pipe >= 0; }
  bool reports(char what) const { return !output.empty() && output[0] == what; }
};

void write_all(int descriptor, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(descriptor, text.data() + done, text.size() - done);
    if (count < 0 && errno != EINTR) return;  // the parent is gone; the exit code says the rest
    if (count > 0) done += static_cast<size_t>(count);
  }
}

[[noreturn]] void run_child(int descriptor, const spec::GridShape& shape, int64_t rank, const std::string& store_file,
                            const RankFunction& function, const LocalRanksOptions& options) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string report;
  try {
    at::set_num_threads(options.num_threads);
    GridOptions grid_options;
    if (options.shared_stages)
      grid_options.shared_stages = *options.shared_stages;
    else if (shape.pipeline > 1)
      grid_options.shared_stages = {{0, shape.pipeline - 1}};
    grid_options.backend.one_machine = true;
    grid_options.backend.shared_memory = options.shared_memory;
    grid_options.backend.reads_directly = options.reads_directly;
    grid_options.backend.have_parent = true;
    grid_options.backend.timeout = std::chrono::milliseconds(static_cast<int64_t>(options.timeout_seconds * 1000));
    if (shape.num_ranks() > 1)
      grid_options.store = c10::make_intrusive<c10d::FileStore>(store_file, static_cast<int>(shape.num_ranks()));
    if (options.place) options.place(rank, grid_options);
    const Grid grid = make_grid(shape, rank, grid_options);
    report = "+" + function(grid);
    grid.world.barrier();  // nobody leaves while another still reads from it
  } catch (const std::exception& error) {
    report = concat("!", error.what());
  }
  write_all(descriptor, report);
  std::fflush(nullptr);
  ::_exit(report[0] == '+' ? 0 : 1);  // no destructors: they belong to the parent
}

void kill_all(std::vector<Child>& children) {
  for (Child& child : children)
    if (child.process > 0) ::kill(child.process, SIGKILL);
  for (Child& child : children) {
    if (child.process > 0) ::waitpid(child.process, nullptr, 0);
    if (child.open()) ::close(child.pipe);
    child.process = child.pipe = -1;
  }
}

// Takes what a child has to say. False when it has closed its pipe.
bool take_output(Child& child) {
  char buffer[1 << 16];
  const ssize_t count = ::read(child.pipe, buffer, sizeof buffer);
  if (count > 0) child.output.append(buffer, static_cast<size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

std::string end_of(Child& child) {
  int status = 0;
  while (::waitpid(child.process, &status, 0) < 0 && errno == EINTR) {
  }
  child.process = -1;
  child.ended_well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (WIFSIGNALED(status)) return concat("ended by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  return concat("ended with exit code ", WEXITSTATUS(status));
}

// Waits for all children; the number of the first that failed, or -1.
int64_t collect(std::vector<Child>& children, double timeout_seconds, std::string& reason) {
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000));
  for (size_t num_open = children.size(); num_open > 0;) {
    std::vector<pollfd> descriptors;
    std::vector<size_t> owners;
    for (size_t rank = 0; rank < children.size(); ++rank)
      if (children[rank].open()) {
        descriptors.push_back({children[rank].pipe, POLLIN, 0});
        owners.push_back(rank);
      }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) {
      reason = concat("has not finished within ", timeout_seconds, " s");
      return static_cast<int64_t>(owners[0]);
    }
    if (::poll(descriptors.data(), descriptors.size(), static_cast<int>(left)) < 0 && errno != EINTR)
      throw std::runtime_error(concat("poll: ", std::strerror(errno)));
    for (size_t i = 0; i < descriptors.size(); ++i) {
      Child& child = children[owners[i]];
      if (descriptors[i].revents == 0 || take_output(child)) continue;
      ::close(std::exchange(child.pipe, -1));
      --num_open;
      const std::string how = end_of(child);
      if (child.reports('+') && child.ended_well) continue;
      reason = child.reports('!') ? child.output.substr(1) : how;
      return static_cast<int64_t>(owners[i]);
    }
  }
  return -1;
}

}  // namespace

std::vector<std::string> run_ranks(const spec::GridShape& shape, const RankFunction& function,
                                   const LocalRanksOptions& options) {
  std::string folder = (temporary_folder() / "espalier-ranks-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr)
    throw UserError(concat("cannot create ", folder, ": ", std::strerror(errno)), ExitCode::kCannotCreate);
  std::vector<Child> children(static_cast<size_t>(shape.num_ranks()));
  std::fflush(nullptr);  // or every child would print it again
  for (int64_t rank = 0; rank < shape.num_ranks(); ++rank) {
    int ends[2];
    ESPALIER_CHECK(::pipe(ends) == 0, std::strerror(errno));
    const pid_t process = ::fork();
    ESPALIER_CHECK(process >= 0, std::strerror(errno));
    if (process == 0) {
      ::close(ends[0]);
      run_child(ends[1], shape, rank, folder + "/store", function, options);
    }
    ::close(ends[1]);
    children[static_cast<size_t>(rank)] = {.process = process, .pipe = ends[0]};
  }
  std::string reason;
  const int64_t failed = collect(children, options.timeout_seconds, reason);
  kill_all(children);
  std::error_code ignored;  // a leftover in the temporary folder harms nobody
  std::filesystem::remove_all(folder, ignored);
  if (failed >= 0)
    throw UserError(concat("rank ", failed, " of ", shape.num_ranks(), " (", spec::to_string(shape), "): ", reason));
  std::vector<std::string> results;
  for (Child& child : children) results.push_back(child.output.substr(1));
  return results;
}

}  // namespace espalier::dist
