#include "serve/passages.h"

#include <boost/asio/post.hpp>

#include "base/error.h"
#include "base/format.h"
#include "base/log.h"

namespace espalier::serve {
namespace {

constexpr int64_t kUsualCount = 5;

// What the thread of the searches makes of one.
struct Searched {
  std::vector<FoundPassage> found;
  std::optional<ApiError> error;
};

Searched search(const Desk& desk, const PassagesWanted& wanted, std::chrono::steady_clock::time_point begun) {
  const auto waited = std::chrono::steady_clock::now() - begun;
  if (waited > desk.options.request_limit)
    return {{},
            ApiError(504, concat("the search waited longer than the limit of ",
                                 std::chrono::duration<double>(desk.options.request_limit).count(), " seconds"))};
  try {
    return {desk.options.find_passages(wanted.question, wanted.count), {}};
  } catch (const std::exception& error) {
    log_warning("search of passages: ", error.what());
    return {{}, ApiError(500, "the search failed; the log of the server says why")};
  }
}

}  // namespace

PassagesWanted read_passages_wanted(const Desk& desk, Fields& fields, int no_index_status) {
  if (!desk.options.find_passages)
    throw ApiError(no_index_status,
                   "this server has no passages: start it with --retrieval-index, --retrieval-model and "
                   "--evidence-data-path",
                   "", "no_passages");
  return {.question = fields.text("query"),
          .count = fields.integer("k", 1, desk.options.max_passages).value_or(kUsualCount)};
}

void find_passages(Desk& desk, const std::shared_ptr<Answer>& answer, const Generation::Strand& strand,
                   const PassagesWanted& wanted, std::function<void(std::vector<FoundPassage>)> then) {
  desk.enter(1);
  const auto is_gone = std::make_shared<std::atomic<bool>>(false);
  answer->on_gone([is_gone, &desk] {
    desk.metrics.add_gone();
    *is_gone = true;
  });
  boost::asio::post(desk.search_pool, [&desk, answer, strand, wanted, then = std::move(then), is_gone,
                                       begun = std::chrono::steady_clock::now()]() mutable {
    Searched result;
    if (!*is_gone) result = search(desk, wanted, begun);
    boost::asio::post(strand, [&desk, answer = std::move(answer), then = std::move(then), is_gone,
                               result = std::move(result)]() mutable {
      desk.leave(1);
      if (*is_gone) return;
      answer_errors("passages", *answer, [&] {
        if (result.error) throw ApiError(*result.error);
        then(std::move(result.found));
      });
    });
  });
}

nlohmann::ordered_json passages_json(const std::vector<FoundPassage>& passages) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const FoundPassage& passage : passages)
    list.push_back({{"id", passage.id}, {"title", passage.title}, {"text", passage.text}, {"score", passage.score}});
  return list;
}

std::string with_passages(const std::vector<FoundPassage>& passages, const std::string& prompt) {
  std::string text;
  for (const FoundPassage& passage : passages)
    text += concat(passage.title, passage.title.empty() ? "" : "\n", passage.text, "\n\n");
  return text + prompt;
}

void retrieve_passages(const Call& call) {
  Fields fields(call.request.body);
  call.desk.check_model(fields.text("model"));
  const PassagesWanted wanted = read_passages_wanted(call.desk, fields, 404);
  if (wanted.question.empty()) fields.problem("query", "is missing or empty");
  fields.finish();
  find_passages(call.desk, call.answer, call.strand, wanted,
                [answer = call.answer](const std::vector<FoundPassage>& found) {
                  const nlohmann::ordered_json json = {{"passages", passages_json(found)}};
                  answer->reply({.body = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)});
                });
}

}  // namespace espalier::serve
