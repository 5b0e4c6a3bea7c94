#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "launch/internal/protocol.h"
#include "launch/internal/socket.h"
#include "launch/rendezvous_client.h"
#include "launch/rendezvous_server.h"

namespace espalier::launch {
namespace {

using namespace std::chrono_literals;
using Strings = std::vector<std::string>;

class Store : public testing::Test {
 protected:
  RendezvousClient::Options options(const std::string& secret = "the job's secret") const {
    return {"127.0.0.1", server_.port(), secret, 5s};
  }
  std::string message_of(const RendezvousClient::Options& options) const {
    try {
      RendezvousClient client(options);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }
  // Connects and says `text`; what comes back until the server closes.
  std::string say(const std::string& text) const {
    std::string reason;
    const auto deadline = internal::Clock::now() + 5s;
    const internal::Descriptor socket = internal::try_to_connect("127.0.0.1", server_.port(), deadline, reason);
    EXPECT_TRUE(socket.valid()) << reason;
    internal::send_all(socket.get(), text, deadline);
    std::string answer;
    for (char byte; internal::receive_all(socket.get(), &byte, 1, deadline) == internal::Transfer::kDone;)
      answer += byte;
    return answer;
  }

  RendezvousServer server_{{.address = "127.0.0.1", .secret = "the job's secret"}};
};

TEST_F(Store, KeepsBytes) {
  RendezvousClient client(options());
  const std::string bytes("\0\xff\n\x01 text", 9);
  client.set(bytes, bytes + "!");
  EXPECT_EQ(client.get(bytes, 1s), bytes + "!");
  client.set("empty", "");
  EXPECT_EQ(client.get("empty", 1s), "");
  const std::string large(5'000'001, 'x');
  client.set("large", large);
  EXPECT_EQ(client.get("large", 10s), large);
}

TEST_F(Store, DoesWhatC10dStoresDo) {
  RendezvousClient client(options());
  EXPECT_EQ(client.add("count", 5), 5);
  EXPECT_EQ(client.add("count", -7), -2);
  EXPECT_EQ(client.get("count", 1s), "-2") << "counters read as text";
  EXPECT_EQ(client.compare_set("c", "x", "y"), "x") << "not there: the expectation comes back";
  EXPECT_EQ(client.compare_set("c", "", "first"), "first");
  EXPECT_EQ(client.compare_set("c", "other", "second"), "first");
  EXPECT_EQ(client.compare_set("c", "first", "second"), "second");
  client.append("a", "1");
  client.append("a", "2");
  client.multi_set({"m", "n"}, {"3", "4"});
  EXPECT_EQ(client.multi_get({"n", "a", "m"}, 1s), (Strings{"4", "12", "3"}));
  EXPECT_TRUE(client.check({"a", "m"}));
  EXPECT_FALSE(client.check({"a", "missing"}));
  EXPECT_EQ(client.num_keys(), 5);
  EXPECT_EQ(client.list_keys(), (Strings{"a", "c", "count", "m", "n"}));
  EXPECT_TRUE(client.remove("a"));
  EXPECT_FALSE(client.remove("a"));
  EXPECT_EQ(client.num_keys(), 4);
}

TEST_F(Store, AWaitingClientGetsWhatAnotherSetsLater) {
  RendezvousClient first(options()), second(options());
  std::string got;
  std::thread reader([&] { got = first.get("late", 10s); });
  std::this_thread::sleep_for(50ms);
  second.set("other", "no");
  second.set("late", "here");
  reader.join();
  EXPECT_EQ(got, "here");
}

TEST_F(Store, WaitsForAllKeys) {
  RendezvousClient first(options()), second(options());
  std::atomic<bool> done = false;
  std::thread waiter([&] {
    first.wait({"a", "b"}, 10s);
    done = true;
  });
  second.set("a", "");
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(done);
  second.add("b", 1);
  waiter.join();
}

TEST_F(Store, AWaitEndsInTimeAndNamesTheKey) {
  RendezvousClient client(options());
  try {
    client.get("never", 200ms);
    FAIL();
  } catch (const RendezvousTimeout& error) {
    EXPECT_STREQ(error.what(), "nobody has set never in the ranks' rendezvous store within 0.20 s");
  }
  client.set("x", "works still");
  EXPECT_EQ(client.get("x", 1s), "works still");
}

TEST_F(Store, ManyClientsCountTogether) {
  constexpr int kClients = 33, kRounds = 50;
  std::vector<std::thread> threads;
  for (int index = 0; index < kClients; ++index)
    threads.emplace_back([&] {
      RendezvousClient client(options());
      for (int round = 0; round < kRounds; ++round)
        if (client.add(concat("barrier", round), 1) == kClients)
          client.set(concat("open", round), "");
        else
          client.wait({concat("open", round)}, 20s);
    });
  for (std::thread& thread : threads) thread.join();
  RendezvousClient client(options());
  EXPECT_EQ(client.get(concat("barrier", kRounds - 1), 1s), std::to_string(kClients));
}

TEST_F(Store, APeerWithAnotherSecretIsRefusedAndCounted) {
  EXPECT_NE(message_of(options("wrong")).find("the secrets differ"), std::string::npos);
  EXPECT_EQ(server_.num_refused(), 1);
  RendezvousClient client(options());
  client.set("still", "fine");
}

TEST_F(Store, NoiseProvesNothing) {
  const std::string answer = say(std::string(internal::kAnswerBytes, 'x'));
  EXPECT_EQ(answer.substr(0, internal::kMagic.size()), internal::kMagic);
  EXPECT_EQ(answer.size(), internal::kHelloBytes + 1);
  EXPECT_EQ(answer.back(), internal::kRefused);
  EXPECT_EQ(server_.num_refused(), 1);
}

TEST_F(Store, AProofOfAnotherConnectionIsWorthNothing) {
  const internal::Nonces recorded{std::string(internal::kNonceBytes, 's'), std::string(internal::kNonceBytes, 'c')};
  const std::string replay = recorded.client + internal::proof("the job's secret", internal::Side::kClient, recorded);
  EXPECT_EQ(say(replay).back(), internal::kRefused);
}

TEST_F(Store, AnUnsealedMessageEndsTheConnection) {
  std::string reason;
  const auto deadline = internal::Clock::now() + 5s;
  const internal::Descriptor socket = internal::try_to_connect("127.0.0.1", server_.port(), deadline, reason);
  std::string hello(internal::kHelloBytes, '\0');
  internal::receive_all(socket.get(), hello.data(), hello.size(), deadline);
  const internal::Nonces nonces{hello.substr(internal::kMagic.size()), std::string(internal::kNonceBytes, 'c')};
  internal::send_all(socket.get(), nonces.client + internal::proof("the job's secret", internal::Side::kClient, nonces),
                     deadline);
  std::string answer(1 + internal::kProofBytes, '\0');
  internal::receive_all(socket.get(), answer.data(), answer.size(), deadline);
  EXPECT_EQ(answer.front(), internal::kAccepted);
  // What somebody on the way would send: the right form without the key.
  internal::MessageWriter request;
  request.byte(static_cast<uint8_t>(internal::Operation::kSet));
  request.bytes("key");
  request.bytes("value");
  internal::Seal forged("a guess", internal::Side::kClient, nonces);
  internal::send_all(socket.get(), forged.seal(request.text()), deadline);
  char byte;
  EXPECT_EQ(internal::receive_all(socket.get(), &byte, 1, deadline), internal::Transfer::kClosed);
  EXPECT_EQ(RendezvousClient(options()).num_keys(), 0);
}

TEST_F(Store, TheSecretIsNeverSent) {
  const internal::Nonces nonces{std::string(32, 's'), std::string(32, 'c')};
  const std::string secret = "0123456789abcdef";
  EXPECT_EQ(internal::proof(secret, internal::Side::kClient, nonces).find(secret), std::string::npos);
  EXPECT_NE(internal::proof(secret, internal::Side::kClient, nonces),
            internal::proof(secret, internal::Side::kServer, nonces))
      << "a proof cannot be sent back to whom it came from";
}

TEST_F(Store, TheLastWillOfAClientIsDoneWhenItIsGone) {
  RendezvousClient heir(options());
  {
    RendezvousClient client(options());
    client.leave_will({"old"}, {"1"});
    client.leave_will({"gone", "why"}, {"1", "no word"});
    EXPECT_FALSE(heir.check({"gone"}));
  }
  EXPECT_EQ(heir.get("gone", 5s), "1");
  EXPECT_EQ(heir.list_keys(), (Strings{"gone", "why"}));
  {
    RendezvousClient client(options());
    client.leave_will({"never"}, {""});
    client.leave_will({}, {});
  }
  EXPECT_THROW(heir.get("never", 200ms), RendezvousTimeout);
}

TEST_F(Store, AClientThatLeavesIsForgotten) {
  {
    RendezvousClient client(options());
    client.set("a", "");
    EXPECT_EQ(server_.num_clients(), 1);
  }
  for (int tries = 0; tries < 100 && server_.num_clients() > 0; ++tries) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(server_.num_clients(), 0);
}

TEST_F(Store, AClientWaitsForAServerThatStartsLater) {
  int port = 0;
  {
    const RendezvousServer brief({.address = "127.0.0.1", .secret = "s"});
    port = brief.port();
  }
  std::unique_ptr<RendezvousServer> late;
  std::thread starter([&] {
    std::this_thread::sleep_for(200ms);
    late = std::make_unique<RendezvousServer>(RendezvousServer::Options{"127.0.0.1", port, "s"});
  });
  RendezvousClient client({"127.0.0.1", port, "s", 10s});
  client.set("a", "");
  starter.join();
}

TEST(StoreErrors, NobodyThere) {
  try {
    RendezvousClient client({"127.0.0.1", 1, "s", 300ms});
    FAIL();
  } catch (const RendezvousTimeout& error) {
    EXPECT_NE(std::string(error.what()).find("no rendezvous store of the ranks at 127.0.0.1:1 after 0."),
              std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("Connection refused"), std::string::npos) << error.what();
  }
}

TEST(StoreErrors, AnotherProgramListensThere) {
  const internal::Descriptor silent = internal::listen_on("127.0.0.1", 0);
  std::thread other([&] {
    for (int tries = 0; tries < 500; ++tries) {
      const internal::Descriptor peer(accept(silent.get(), nullptr, nullptr));
      if (!peer.valid()) {
        std::this_thread::sleep_for(10ms);
        continue;
      }
      internal::send_all(peer.get(), "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
                         internal::Clock::now() + 1s);
      return;
    }
  });
  try {
    RendezvousClient client({"127.0.0.1", internal::port_of(silent), "s", 5s});
    ADD_FAILURE();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("is not a rendezvous store of Espalier: another program"),
              std::string::npos);
  }
  other.join();
}

TEST(StoreErrors, ThePortIsTaken) {
  const RendezvousServer first({.address = "127.0.0.1", .secret = "s"});
  try {
    const RendezvousServer second({.address = "127.0.0.1", .port = first.port(), .secret = "s"});
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("Another program listens there"), std::string::npos) << error.what();
  }
}

TEST_F(Store, AWaitingClientIsInterrupted) {
  RendezvousClient client(options());
  bool failed = false;
  std::thread waiter([&] {
    try {
      client.get("never", 60s);
    } catch (const RendezvousTimeout&) {
    } catch (const UserError&) {
      failed = true;
    }
  });
  std::this_thread::sleep_for(50ms);
  client.interrupt();
  waiter.join();
  EXPECT_TRUE(failed);
  EXPECT_THROW(client.num_keys(), UserError);
}

TEST(StoreErrors, TheServerEnds) {
  auto server = std::make_unique<RendezvousServer>(RendezvousServer::Options{"127.0.0.1", 0, "s"});
  RendezvousClient client({"127.0.0.1", server->port(), "s", 5s});
  std::string message;
  std::thread waiter([&] {
    try {
      client.get("never", 60s);
    } catch (const UserError& error) {
      message = error.what();
    }
  });
  std::this_thread::sleep_for(50ms);
  server.reset();
  waiter.join();
  EXPECT_NE(message.find("lost the rendezvous store at 127.0.0.1:"), std::string::npos) << message;
}

}  // namespace
}  // namespace espalier::launch
