// RACE: each line of each *.txt is an article with its questions, the four options of each, and the letters of the
// answers.
#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "data/internal/task_reader.h"
#include "data/line_reader.h"

namespace espalier::data::internal {
namespace {

constexpr size_t kOptions = 4;

// Every blank of a question is where an option goes; a question without one comes before it.
std::string with_option(const std::string& question, const std::string& option) {
  if (question.find('_') == std::string::npos) return clean_task_text(question + " " + option);
  std::string filled;
  for (const char letter : question) {
    if (letter == '_')
      filled += option;
    else
      filled += letter;
  }
  return clean_task_text(filled);
}

bool is_list_of_texts(const nlohmann::json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const auto& one) { return one.is_string(); });
}

// What is wrong with it; empty: nothing.
std::string complaint_about_article(const nlohmann::json& article) {
  if (!article.is_object()) return "expected a JSON object";
  for (const char* key : {"article", "questions", "options", "answers"})
    if (!article.contains(key)) return concat("there is no '", key, "'");
  if (!article["article"].is_string()) return "'article' is not a text";
  for (const char* key : {"questions", "answers"})
    if (!is_list_of_texts(article[key])) return concat("'", key, "' is not a list of texts");
  const size_t questions = article["questions"].size();
  if (!article["options"].is_array() || article["options"].size() != questions ||
      article["answers"].size() != questions)
    return concat("there are ", questions, " questions; expected the same number of answers and lists of options");
  for (const nlohmann::json& options : article["options"])
    if (!is_list_of_texts(options) || options.size() != kOptions) return "a question does not have 4 options";
  for (const nlohmann::json& answer : article["answers"]) {
    const std::string& letter = answer.get_ref<const std::string&>();
    if (letter.size() != 1 || letter[0] < 'A' || letter[0] > 'D')
      return concat("the answer '", letter, "' is not A, B, C or D");
  }
  return "";
}

void add_questions(const nlohmann::json& article, TaskExamples& read) {
  const auto text = std::make_shared<const std::string>(clean_task_text(article["article"].get<std::string>()));
  for (size_t number = 0; number < article["questions"].size(); ++number) {
    TaskExample example;
    for (const nlohmann::json& option : article["options"][number])
      example.first.push_back(with_option(article["questions"][number].get<std::string>(), option.get<std::string>()));
    example.second = text;
    example.label = article["answers"][number].get_ref<const std::string&>()[0] - 'A';
    example.uid = static_cast<int64_t>(read.examples.size());
    read.examples.push_back(std::move(example));
  }
}

void read_race_file(const std::string& file, TaskExamples& read, Problems& problems) {
  FileProblems found(file, problems);
  LineReader reader({file});
  int64_t number = 0;
  for (std::string_view line; reader.next(line);) {
    ++number;
    if (line.find_first_not_of(" \t\r\n") == std::string_view::npos) continue;
    nlohmann::json article;
    try {
      article = parse_json(line, concat(file, ", line ", number));
    } catch (const UserError& error) {
      problems.add(error.what());
      return;
    }
    const std::string complaint = complaint_about_article(article);
    if (complaint.empty())
      add_questions(article, read);
    else
      found.add(number, complaint);
  }
}

}  // namespace

void read_race(const std::string& folder, TaskExamples& read, Problems& problems) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".txt") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  if (files.empty()) problems.add(folder, " holds no *.txt; give the folders that do, such as RACE/train/middle");
  for (const std::string& file : files) read_race_file(file, read, problems);
}

}  // namespace espalier::data::internal
