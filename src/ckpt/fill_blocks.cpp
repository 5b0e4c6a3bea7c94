#include "ckpt/fill_blocks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "ckpt/device_reader.h"

namespace espalier::ckpt {
namespace {

constexpr int64_t kMessageBytes = int64_t{16} << 20;
constexpr int kBlockTag = 0x636b7074;

void copy_own(const SavePlan& plan, const std::vector<TensorToSave>& tensors, uint8_t* buffer, DeviceReader& reader) {
  for (const OwnCopy& own : plan.own)
    reader.read(static_cast<const uint8_t*>(tensors[own.from.tensor].value.const_data_ptr()) + own.from.begin,
                own.from.count, buffer + own.to);
}

// Pieces of memory read or written as one long stream, a message at a time.
template <class Byte>
class PieceStream {
 public:
  void add(Byte* data, int64_t bytes) {
    pieces_.push_back({data, bytes});
    left_ += bytes;
  }
  int64_t next_message_bytes() const { return std::min(left_, kMessageBytes); }

  // Calls move(piece, place in the message, bytes) for what the next message consists of.
  template <class Move>
  void next_message(const Move& move) {
    const int64_t total = next_message_bytes();
    for (int64_t done = 0; done < total;) {
      const Piece& piece = pieces_[current_];
      const int64_t bytes = std::min(piece.bytes - position_, total - done);
      move(piece.data + position_, done, bytes);
      done += bytes, position_ += bytes;
      if (position_ == piece.bytes) ++current_, position_ = 0;
    }
    left_ -= total;
  }

 private:
  struct Piece {
    Byte* data;
    int64_t bytes;
  };
  std::vector<Piece> pieces_;
  size_t current_ = 0;
  int64_t position_ = 0, left_ = 0;
};

PieceStream<const uint8_t> stream_to(const SavePlan& plan, int64_t peer, const std::vector<TensorToSave>& tensors) {
  PieceStream<const uint8_t> stream;
  if (const auto found = plan.gives.find(peer); found != plan.gives.end())
    for (const LocalBytes& piece : found->second)
      stream.add(static_cast<const uint8_t*>(tensors[piece.tensor].value.const_data_ptr()) + piece.begin, piece.count);
  return stream;
}

PieceStream<uint8_t> stream_from(const SavePlan& plan, int64_t peer, uint8_t* buffer) {
  PieceStream<uint8_t> stream;
  if (const auto found = plan.takes.find(peer); found != plan.takes.end())
    for (const BufferBytes& piece : found->second) stream.add(buffer + piece.begin, piece.count);
  return stream;
}

}  // namespace

at::Device device_of(const std::vector<TensorToSave>& tensors) {
  return tensors.empty() ? at::Device(at::kCPU) : tensors[0].value.device();
}

void fill_blocks(const SavePlan& plan, const std::vector<TensorToSave>& tensors, uint8_t* buffer,
                 const dist::Group& group) {
  const at::Device device = device_of(tensors);
  for (const TensorToSave& tensor : tensors) ESPALIER_CHECK(tensor.value.device() == device, tensor.name);
  DeviceReader reader(device);
  copy_own(plan, tensors, buffer, reader);
  if (group.size() == 1) return;
  const at::Tensor outgoing = at::empty({kMessageBytes}, at::kByte), incoming = at::empty({kMessageBytes}, at::kByte);
  auto* const packed = static_cast<uint8_t*>(outgoing.mutable_data_ptr());
  const auto* const received = static_cast<const uint8_t*>(incoming.const_data_ptr());
  // In round r every rank gives to the one r places on and takes from the one r places back: nobody waits in a circle,
  // and no rank is asked by two at a time.
  for (int64_t round = 1; round < group.size(); ++round) {
    const int64_t to = (group.rank() + round) % group.size();
    const int64_t from = (group.rank() - round + group.size()) % group.size();
    PieceStream<const uint8_t> gives = stream_to(plan, to, tensors);
    PieceStream<uint8_t> takes = stream_from(plan, from, buffer);
    while (gives.next_message_bytes() > 0 || takes.next_message_bytes() > 0) {
      dist::Pending sending, receiving;
      const int64_t give_bytes = gives.next_message_bytes(), take_bytes = takes.next_message_bytes();
      if (take_bytes > 0) receiving = group.start_receive(incoming.narrow(0, 0, take_bytes), from, kBlockTag);
      if (give_bytes > 0) {
        gives.next_message([&](const uint8_t* piece, int64_t place, int64_t bytes) {
          if (device.is_cpu())
            std::memcpy(packed + place, piece, static_cast<size_t>(bytes));
          else
            reader.read(piece, bytes, packed + place);
        });
        sending = group.start_send(outgoing.narrow(0, 0, give_bytes), to, kBlockTag);
      }
      receiving.wait();
      takes.next_message([&](uint8_t* piece, int64_t place, int64_t bytes) {
        std::memcpy(piece, received + place, static_cast<size_t>(bytes));
      });
      sending.wait();
    }
  }
}

}  // namespace espalier::ckpt
