#include "launch/copy_link.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "base/error.h"
#include "launch/internal/socket.h"

namespace espalier::launch {
namespace copy_link_test {

using State = CopyLink::State;

constexpr int64_t kBytes = 9'000'017;  // pieces and blocks, the last ones shorter

std::vector<uint8_t> data_of(int64_t step, int64_t bytes = kBytes) {
  std::vector<uint8_t> data(static_cast<size_t>(bytes));
  for (size_t at = 0; at < data.size(); ++at) data[at] = static_cast<uint8_t>(at / 3 + static_cast<size_t>(step));
  return data;
}

SnapshotHead head_of(int64_t step, const std::vector<uint8_t>& data) {
  return {.step = step,
          .bytes = std::ssize(data),
          .identity = 7,
          .checksum = snapshot_checksum(data.data(), std::ssize(data)),
          .text = "of " + std::to_string(step)};
}

State wait_for_end(const CopyLink& link, double seconds = 20) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  State state = link.state();
  for (; state == State::kUnderWay && std::chrono::steady_clock::now() < end; state = link.state())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return state;
}

class CopyLinks : public testing::Test {
 protected:
  CopyLinks() : memory_(1), slots_(memory_.descriptor(), 0, SlotsOf::kPeer) { slots_.reserve(kBytes); }

  static std::unique_ptr<CopyLink> link(const std::string& secret = "the job's secret", double patience = 20,
                                        const std::string& name = "a rank") {
    return std::make_unique<CopyLink>(
        CopyLink::Options{.secret = secret, .name = name, .master_address = "127.0.0.1", .patience_seconds = patience});
  }
  void connect(CopyLink& from, CopyLink& to) {
    to.receive_into(slots_, from.end());
    from.send_to(to.end());
  }
  // Until it has arrived.
  static void send(CopyLink& link, int64_t step, int64_t kept_step) {
    const std::vector<uint8_t> data = data_of(step);
    link.send(head_of(step, data), data.data(), kept_step);
    EXPECT_EQ(wait_for_end(link), State::kArrived) << link.trouble();
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> steps;
    for (const SnapshotHead& head : slots_.heads()) steps.push_back(head.step);
    return steps;
  }
  void expect_holds(int64_t step) const {
    for (const SnapshotHead& head : slots_.heads()) {
      if (head.step != step) continue;
      const std::vector<uint8_t> data = data_of(step);
      EXPECT_EQ(std::vector<uint8_t>(slots_.data(head.slot), slots_.data(head.slot) + head.bytes), data);
      EXPECT_EQ(head.identity, 7u);
      EXPECT_EQ(head.checksum, snapshot_checksum(data.data(), kBytes));
      EXPECT_EQ(head.text, "of " + std::to_string(step));
      return;
    }
    ADD_FAILURE() << "no copy of step " << step;
  }

  SnapshotMemory memory_;
  SnapshotSlots slots_;
};

TEST_F(CopyLinks, CopiesArriveWhole) {
  const auto to = link(), from = link();
  connect(*from, *to);
  EXPECT_EQ(from->state(), State::kIdle);
  for (int64_t step = 1; step <= 5; ++step) {
    send(*from, step, step - 1);
    expect_holds(step);
    if (step > 1) expect_holds(step - 1);
  }
  EXPECT_GT(from->seconds(), 0);
}

// Of two, that which is whole everywhere is not the one to be overwritten, even where a later one has come.
TEST_F(CopyLinks, TheCopyThatIsToBeKeptIsKept) {
  const auto to = link(), from = link();
  connect(*from, *to);
  send(*from, 1, 0), send(*from, 2, 1), send(*from, 3, 1);
  EXPECT_EQ(steps(), (std::vector<int64_t>{3, 1}));
}

TEST_F(CopyLinks, OneWithAnotherChecksumDoesNotCount) {
  const auto to = link(), from = link();
  connect(*from, *to);
  send(*from, 1, 0);
  std::vector<uint8_t> data = data_of(2);
  const SnapshotHead head = head_of(2, data);
  data[kBytes - 1] ^= 4;
  from->send(head, data.data(), 1);
  EXPECT_EQ(wait_for_end(*from), State::kDamaged);
  EXPECT_EQ(steps(), std::vector<int64_t>{1});
  send(*from, 3, 1);
  EXPECT_EQ(steps(), (std::vector<int64_t>{3, 1}));
}

TEST_F(CopyLinks, SayWhatForWhereTheyCannotListen) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  std::string message;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  try {
    link();
  } catch (const UserError& error) {
    message = error.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(message,
            "cannot receive copies of the state of another machine's rank at a free port: Too many open files");
}

TEST_F(CopyLinks, ASenderThatDiesInTheMiddleLeavesTheCopyBefore) {
  for (int64_t milliseconds = 0; milliseconds < 12; ++milliseconds) {
    slots_.forget_after(0);
    const auto to = link(), from = link();
    to->receive_into(slots_, from->end());
    const pid_t child = fork();
    if (child == 0) {
      from->send_to(to->end());
      for (int64_t step = 1;; ++step) {
        const std::vector<uint8_t> data = data_of(step);
        from->send(head_of(step, data), data.data(), step - 1);
        wait_for_end(*from);
        if (step > 1) continue;
        std::thread([milliseconds] {
          std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
          kill(getpid(), SIGKILL);
        }).detach();
      }
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    ASSERT_FALSE(steps().empty());
    for (const int64_t step : steps()) expect_holds(step);
  }
}

TEST_F(CopyLinks, WhoDoesNotHoldTheSecretIsRefused) {
  const auto to = link("the job's secret"), stranger = link("another secret"), from = link("the job's secret");
  to->receive_into(slots_, from->end());
  stranger->send_to(to->end());
  const std::vector<uint8_t> data = data_of(1);
  stranger->send(head_of(1, data), data.data(), 0);
  EXPECT_EQ(wait_for_end(*stranger), State::kBroken);
  EXPECT_EQ(steps(), std::vector<int64_t>{});
  from->send_to(to->end());
  send(*from, 2, 0);
}

// The port that a rank listened at is another's now, of this run or of another with the same secret.
TEST_F(CopyLinks, WhoIsNotMeantIsRefusedByName) {
  const auto to = link("secret", 20, "rank 1 of run b, start 2"), from = link("secret", 20, "rank 0 of run b, start 2"),
             stale = link("secret", 20, "rank 0 of run a, start 1"),
             meant = link("secret", 20, "rank 1 of run a, start 1");
  to->receive_into(slots_, from->end());
  stale->send_to({to->end().address, meant->end().name});
  const std::vector<uint8_t> data = data_of(1);
  stale->send(head_of(1, data), data.data(), 0);
  EXPECT_EQ(wait_for_end(*stale), State::kBroken);
  EXPECT_NE(stale->trouble().find("rank 1 of run b, start 2, link "), std::string::npos) << stale->trouble();
  EXPECT_NE(stale->trouble().find(" listens there, and rank 1 of run a, start 1, link "), std::string::npos)
      << stale->trouble();
  EXPECT_EQ(steps(), std::vector<int64_t>{});
  from->send_to(to->end());
  send(*from, 2, 0);
}

// It means whom it calls, but another was to call.
TEST_F(CopyLinks, WhoIsNotExpectedIsRefused) {
  const auto to = link(), from = link(), other = link();
  to->receive_into(slots_, from->end());
  other->send_to(to->end());
  const std::vector<uint8_t> data = data_of(1);
  other->send(head_of(1, data), data.data(), 0);
  EXPECT_EQ(wait_for_end(*other), State::kBroken);
  EXPECT_EQ(steps(), std::vector<int64_t>{});
  from->send_to(to->end());
  send(*from, 2, 0);
}

TEST_F(CopyLinks, ACopyThatDoesNotFitEndsTheLink) {
  const auto to = link(), from = link();
  connect(*from, *to);
  const std::vector<uint8_t> data = data_of(1, kBytes + 1);
  from->send(head_of(1, data), data.data(), 0);
  EXPECT_EQ(wait_for_end(*from), State::kBroken);
  EXPECT_NE(from->trouble().find("the connection was closed"), std::string::npos) << from->trouble();
  EXPECT_EQ(steps(), std::vector<int64_t>{});
}

TEST_F(CopyLinks, WhereNobodyListensTheLinkIsBrokenAndSaysWhere) {
  const auto from = link();
  const std::string nowhere = "127.0.0.1:1";
  from->send_to({nowhere, "nobody"});
  const std::vector<uint8_t> data = data_of(1);
  from->send(head_of(1, data), data.data(), 0);
  EXPECT_EQ(wait_for_end(*from), State::kBroken);
  EXPECT_NE(from->trouble().find(nowhere), std::string::npos) << from->trouble();
  from->send(head_of(1, data), data.data(), 0);
  EXPECT_EQ(from->state(), State::kBroken);
}

TEST_F(CopyLinks, OneThatDoesNotMoveForTooLongIsBroken) {
  const internal::Descriptor mute = internal::listen_on("127.0.0.1", 0);
  const auto from = link("the job's secret", 0.2);
  from->send_to({"127.0.0.1:" + std::to_string(internal::port_of(mute)), "a mute one"});
  const std::vector<uint8_t> data = data_of(1);
  from->send(head_of(1, data), data.data(), 0);
  EXPECT_EQ(wait_for_end(*from), State::kBroken);
  EXPECT_NE(from->trouble().find("nothing moved for too long"), std::string::npos) << from->trouble();
}

// Ranks end while copies are under way.
TEST_F(CopyLinks, EndingDoesNotWaitForACopy) {
  auto to = link(), from = link();
  connect(*from, *to);
  const std::vector<uint8_t> data = data_of(1);
  from->send(head_of(1, data), data.data(), 0);
  const auto start = std::chrono::steady_clock::now();
  from.reset();
  to.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
}

}  // namespace copy_link_test
}  // namespace espalier::launch
