// Beam search over sequences: a step of it is taken when the logits of all beams are available. Beams wait for each
// other with their pages; a beam that continues in two ways shares its full pages.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "infer/engine/active_request.h"
#include "infer/engine/beam_search.h"

namespace espalier::infer {

class BeamRequest final : public ActiveRequest {
 public:
  BeamRequest(uint64_t id, Request request, EventCallback callback, RequestContext& context);

  void start() override;
  void take_rows(Sequence& sequence, int64_t first, const float* rows, int64_t count) override;

 private:
  struct Beam {
    std::unique_ptr<Sequence> sequence;
    std::vector<Alternative> likeliest;  // empty until its logits are available
  };

  void leave() override;
  void advance();
  Beam forked(const Sequence& parent, int32_t id);
  void send_texts();

  BeamSearch search_;
  std::vector<Beam> beams_;
  int64_t num_sequences_ = 1;  // so far: each has a number of its own
};

}  // namespace espalier::infer
