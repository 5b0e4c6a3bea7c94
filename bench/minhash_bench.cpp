// MinHash signatures of 100 values, in MB of text for each second of processor time (best of five):
//   minhash_bench [FILE.jsonl]     without a file: made-up words
#include <cstdio>
#include <ctime>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "curate/dedup/minhash.h"
#include "curate/document.h"

namespace {

using namespace espalier::curate;

std::vector<std::string> texts_of(const char* path) {
  std::vector<std::string> texts;
  if (path != nullptr) {
    std::ifstream file(path);
    std::string line, reason;
    int64_t num_replaced = 0;
    while (std::getline(file, line)) {
      Document document;
      if (parse_document(line, "text", document, reason, num_replaced)) texts.push_back(std::move(document.text));
    }
    return texts;
  }
  std::mt19937 random(1);
  std::vector<std::string> words(20000);
  for (std::string& word : words)
    for (size_t letter = 0, size = 2 + random() % 9; letter < size; ++letter)
      word += static_cast<char>('a' + random() % 26);
  for (int text = 0; text < 5000; ++text) {
    std::string& made = texts.emplace_back();
    while (made.size() < 4000)  // few words are frequent, as in a language
      made += words[static_cast<size_t>(20000.0 / (1 + random() % 20000)) % words.size() * (1 + random() % 7) % 20000] +
              ' ';
  }
  return texts;
}

template <class Work>
void measure(const char* name, const std::vector<std::string>& texts, Work work) {
  double bytes = 0, best = 0;
  for (const std::string& text : texts) bytes += static_cast<double>(text.size());
  for (int run = 0; run < 5; ++run) {
    const std::clock_t start = std::clock();
    uint64_t sum = 0;
    for (const std::string& text : texts) sum += work(text);
    const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    best = std::max(best, bytes / 1e6 / seconds);
    if (sum == 1) std::puts("");  // so that the work is done
  }
  std::printf("%-44s %8.1f MB/s\n", name, best);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> texts = texts_of(argc > 1 ? argv[1] : nullptr);
  const char* const names[] = {"generic", "avx2", "avx512"};
  for (int isa = 0; isa <= static_cast<int>(best_minhash_isa()); ++isa) {
    const WindowMinHash windows(openwebtext_seeds(), static_cast<MinHashIsa>(isa));
    measure((std::string("OpenWebText, 100 values, ") + names[isa]).c_str(), texts,
            [&](const std::string& text) { return windows(text)[0]; });
    const ShingleMinHash shingles(100, 1, static_cast<MinHashIsa>(isa));
    measure((std::string("5 words, 100 values of 64 bits, ") + names[isa]).c_str(), texts,
            [&](const std::string& text) { return shingles(shingle_hashes(text, ShingleUnit::kWords, 5))[0]; });
  }
}
