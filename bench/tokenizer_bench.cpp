// How fast text becomes ids on one core: tokenizer_bench TOKENIZER FILE.jsonl [REPEATS]
//
// Every repeat takes a new encoder, so its cache of words is cold; the last line goes through the texts again with the
// warm one. Times are those of the thread's CPU clock, so other work on the machine disturbs them little. One JSON
// object per line on stdout; bench/tokenizer_peers.py runs this against tiktoken and tokenizers.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <nlohmann/json.hpp>

#include "text/tokenizer.h"

namespace {

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<std::string> read_texts(const char* path) {
  std::ifstream lines(path);
  std::vector<std::string> texts;
  for (std::string line; std::getline(lines, line);) texts.push_back(nlohmann::json::parse(line).at("text"));
  return texts;
}

struct Run {
  double seconds;
  size_t num_tokens;
};

Run encode_all(espalier::text::Encoder& encoder, const std::vector<std::string>& texts) {
  std::vector<int32_t> ids;
  Run run{0, 0};
  const double start = cpu_seconds();
  for (const std::string& text : texts) {
    ids.clear();
    encoder.encode(text, ids);
    run.num_tokens += ids.size();
  }
  run.seconds = cpu_seconds() - start;
  return run;
}

void print(const char* state, double megabytes, const Run& run) {
  std::printf("{\"peer\": \"espalier\", \"cache\": \"%s\", \"mb_per_s\": %.1f, \"tokens\": %zu}\n", state,
              megabytes / run.seconds, run.num_tokens);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: tokenizer_bench TOKENIZER FILE.jsonl [REPEATS]\n");
    return 2;
  }
  const double load_start = cpu_seconds();
  const auto tokenizer = espalier::text::open_tokenizer(argv[1]);
  std::fprintf(stderr, "loaded in %.0f ms\n", 1e3 * (cpu_seconds() - load_start));
  const std::vector<std::string> texts = read_texts(argv[2]);
  double megabytes = 0;
  for (const std::string& text : texts) megabytes += 1e-6 * static_cast<double>(text.size());
  std::vector<Run> cold;
  std::unique_ptr<espalier::text::Encoder> encoder;
  for (int repeat = 0; repeat < (argc > 3 ? std::atoi(argv[3]) : 5); ++repeat) {
    encoder = tokenizer->new_encoder();
    cold.push_back(encode_all(*encoder, texts));
  }
  std::sort(cold.begin(), cold.end(), [](const Run& a, const Run& b) { return a.seconds < b.seconds; });
  print("cold", megabytes, cold[cold.size() / 2]);
  print("warm", megabytes, encode_all(*encoder, texts));
  return 0;
}
