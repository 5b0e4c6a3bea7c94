#include "tests/control_plane/timeline.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/mix64.h"

namespace espalier::control_plane {
namespace {

constexpr uint64_t kPiecesOfAStep = 32;  // at least as many as there are
constexpr int kPiecesToLoad = 5, kMicroBatches = 4, kPiecesToEvaluate = 3, kPiecesToSave = 2;

}  // namespace

struct Timeline::Part {
  RunPhase phase;
  int64_t step;
  double begin, end;
  int num_pieces;
  const char* waits_for;
  uint64_t progress;
};

// 0.4 to 0.95
double Timeline::draw(int64_t rank, int64_t step, RunPhase phase) const {
  const uint64_t number = static_cast<uint64_t>(rank * 1'000'003 + step * 8 + static_cast<int64_t>(phase));
  return 0.4 + 0.55 * static_cast<double>(mix64(seed + number * kMix64Step) >> 11) * 0x1p-53;
}

double Timeline::seconds_to_start(int64_t rank) const {
  return start_share * load_seconds * draw(rank, 0, RunPhase::kStart);
}

Timeline::Part Timeline::part_of(int64_t step, RunPhase phase) const {
  if (phase == RunPhase::kLoad) return {phase, 0, start_share * load_seconds, load_seconds, kPiecesToLoad, "load", 2};
  const int64_t done = step - first_step - 1;
  const double begin = load_seconds + static_cast<double>(done) * step_seconds, end = begin + step_seconds;
  const uint64_t progress = kPiecesOfAStep * static_cast<uint64_t>(done + 1);
  const double to_save = saves(step) ? save_share : 0, to_evaluate = evaluates(step) ? evaluation_share : 0;
  const double evaluated = end - to_save * step_seconds, trained = evaluated - to_evaluate * step_seconds;
  if (phase == RunPhase::kSave) return {phase, step, evaluated, end, kPiecesToSave, "save", progress + 16};
  if (phase == RunPhase::kEvaluate)
    return {phase, step, trained, evaluated, kPiecesToEvaluate, "evaluation", progress + 8};
  return {RunPhase::kTrain, step, begin, trained, kMicroBatches, "all-reduce", progress};
}

Nanoseconds Timeline::work_in(int64_t rank, int64_t step, RunPhase phase, double share, bool with_wait) const {
  const Part part = part_of(step, phase);
  const double length = (part.end - part.begin) * (with_wait ? 1 : draw(rank, part.step, phase));
  return nanoseconds(part.begin + share * length);
}

Place Timeline::in_part(const Part& part, int64_t rank, double seconds) const {
  const double length = part.end - part.begin, own = length * draw(rank, part.step, part.phase);
  Place place;
  place.phase = part.phase, place.step = part.step;
  place.meeting = nanoseconds(part.end);
  if (const double done = seconds - part.begin; done < own) {
    const int piece = std::clamp(static_cast<int>(done / own * part.num_pieces), 0, part.num_pieces - 1);
    const double piece_length = own / part.num_pieces;
    if (part.phase == RunPhase::kTrain || part.phase == RunPhase::kEvaluate) place.micro_batch = piece;
    place.begin = nanoseconds(part.begin + piece * piece_length);
    place.end = nanoseconds(part.begin + (piece + 1) * piece_length);
    place.progress = part.progress + static_cast<uint64_t>(piece);
  } else {
    place.waiting = Waiting::kPeers, place.waits_for = part.waits_for;
    place.begin = nanoseconds(part.begin + own), place.end = place.meeting;
    place.progress = part.progress + static_cast<uint64_t>(part.num_pieces);
  }
  return place;
}

Place Timeline::place(int64_t rank, Nanoseconds work) const {
  const double seconds = seconds_of(work), connected = start_share * load_seconds;
  if (seconds < connected) {
    Place place;
    place.waiting = Waiting::kOthers, place.waits_for = "start";
    place.end = place.meeting = nanoseconds(connected);
    place.progress = 1;
    return place;
  }
  if (seconds < load_seconds) return in_part(part_of(0, RunPhase::kLoad), rank, seconds);
  const auto done = static_cast<int64_t>((seconds - load_seconds) / step_seconds);
  const int64_t step = first_step + done + 1;
  if (step > num_steps) {
    Place place;
    place.phase = RunPhase::kExit, place.step = num_steps;
    place.begin = nanoseconds(load_seconds + static_cast<double>(done) * step_seconds);
    place.end = place.meeting = std::numeric_limits<Nanoseconds>::max();
    place.progress = kPiecesOfAStep * static_cast<uint64_t>(done + 1);
    return place;
  }
  Part part = part_of(step, RunPhase::kTrain);
  if (seconds >= part.end && evaluates(step)) part = part_of(step, RunPhase::kEvaluate);
  if (seconds >= part.end && saves(step)) part = part_of(step, RunPhase::kSave);
  return in_part(part, rank, seconds);
}

}  // namespace espalier::control_plane
