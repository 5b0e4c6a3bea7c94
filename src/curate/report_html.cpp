// The report as one page: bars of what each step did to the documents, percentiles, samples with what changed in them.
#include <algorithm>
#include <cmath>

#include "base/format.h"
#include "curate/report.h"

namespace espalier::curate {
namespace html_report {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kHead = R"html(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>What the curation did</title>
<style>
:root { color-scheme: light dark; --line: #8884; --kept: #2a7f62; --dropped: #c0563f; --soft: #8882; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: right; padding: .25rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
td.wide { width: 35%; }
.bar { display: flex; height: .9rem; background: var(--soft); }
.bar .kept { background: var(--kept); } .bar .dropped { background: var(--dropped); }
.scroll { overflow-x: auto; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: var(--soft); padding: .5rem .7rem; margin: .3rem 0; }
del { background: #c0563f55; } ins { background: #2a7f6255; text-decoration: none; }
summary { cursor: pointer; } details { margin: .5rem 0; } svg { display: block; }
.note { opacity: .75; }
</style>
</head>
<body>
<h1>What the curation did</h1>
)html";

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\0': result += "\xEF\xBF\xBD"; break;
      default: result += c;
    }
  return result;
}
std::string escaped_text(const Json& text) { return escaped(text.get_ref<const std::string&>()); }

std::string count(const Json& of, const char* key) { return format_count(of.at(key).get<int64_t>()); }

std::string percent_of(int64_t part, int64_t whole) {
  return format_fixed(whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole), 2);
}
std::string share(const Json& part, const Json& whole) { return whole == 0 ? "-" : percent_of(part, whole) + " %"; }

// Parts of `whole` side by side.
std::string bar(int64_t kept, int64_t dropped, int64_t whole) {
  return concat("<div class=\"bar\"><i class=\"kept\" style=\"width:", percent_of(kept, whole),
                "%\"></i><i class=\"dropped\" style=\"width:", percent_of(dropped, whole), "%\"></i></div>");
}

std::string number(const Json& value) { return value.is_number() ? format_printf("%.4g", value.get<double>()) : "-"; }

void append_steps(const Json& report, std::string& page) {
  const auto documents = report.at("input").at("documents").get<int64_t>();
  page +=
      "<h2>Steps</h2>\n<div class=\"scroll\"><table>\n<tr><th>step</th><th>kept and dropped, of all documents</th>"
      "<th>documents in</th><th>dropped</th><th>share</th><th>changed</th><th>bytes in</th><th>bytes out</th></tr>\n";
  for (const Json& step : report.at("steps"))
    page += concat("<tr><td>", escaped_text(step.at("step")), "</td><td class=\"wide\">",
                   bar(step.at("kept"), step.at("dropped"), std::max<int64_t>(documents, step.at("in"))), "</td><td>",
                   count(step, "in"), "</td><td>", count(step, "dropped"), "</td><td>",
                   share(step.at("dropped"), step.at("in")), "</td><td>", count(step, "changed"), "</td><td>",
                   count(step, "bytes_in"), "</td><td>", count(step, "bytes_out"), "</td></tr>\n");
  page += "</table></div>\n";
}

void append_outputs(const Json& report, std::string& page) {
  int64_t most = 0;
  for (const Json& group : report.at("outputs")) most = std::max(most, group.at("bytes").get<int64_t>());
  page +=
      "<h2>Outputs</h2>\n<div class=\"scroll\"><table>\n<tr><th>output</th><th>bytes of text</th><th></th>"
      "<th>documents</th><th>tokens</th></tr>\n";
  for (const Json& group : report.at("outputs"))
    page +=
        concat("<tr><td>", escaped_text(group.at("name")), "</td><td class=\"wide\">", bar(group.at("bytes"), 0, most),
               "</td><td>", count(group, "bytes"), "</td><td>", count(group, "documents"), "</td><td>",
               group.contains("tokens") ? count(group, "tokens") : "-", "</td></tr>\n");
  page += "</table></div>\n";
}

void append_mix(const Json& report, std::string& page) {
  if (!report.contains("mix") || report.at("mix").empty()) return;
  page +=
      "<h2>What a model sees</h2>\n<div class=\"scroll\"><table>\n<tr><th>output</th><th>share</th><th></th>"
      "<th>tokens read</th><th>times read</th></tr>\n";
  for (const Json& row : report.at("mix")) {
    const double share = 100 * row.at("share").get<double>();
    page += concat("<tr><td>", escaped_text(row.at("output")), "</td><td class=\"wide\">",
                   bar(static_cast<int64_t>(share * 1000), 0, 100000), "</td><td>", format_fixed(share, 3),
                   " %</td><td>", format_count(static_cast<int64_t>(row.at("tokens_read").get<double>())), "</td><td>",
                   format_fixed(row.at("epochs").get<double>(), 3), "</td></tr>\n");
  }
  page += "</table></div>\n";
}

void append_reasons(const Json& step, std::string& page) {
  if (step.at("dropped_by_reason").empty()) return;
  page += "<div class=\"scroll\"><table>\n<tr><th>dropped for</th><th></th><th>documents</th><th>share</th></tr>\n";
  for (const auto& [reason, dropped] : step.at("dropped_by_reason").items())
    page += concat("<tr><td>", escaped(reason), "</td><td class=\"wide\">", bar(0, dropped, step.at("dropped")),
                   "</td><td>", format_count(dropped.get<int64_t>()), "</td><td>", share(dropped, step.at("in")),
                   "</td></tr>\n");
  page += "</table></div>\n";
}

// From the 1st to the 99th percentile as a line, from the 25th to the 75th as a box, the median and the threshold.
std::string box_plot(const Json& measure) {
  constexpr double kWidth = 300;
  const Json& percentiles = measure.at("percentiles");
  for (const auto& [percent, value] : percentiles.items())
    if (!value.is_number()) return "";
  double low = percentiles.at("1"), high = percentiles.at("99");
  if (measure.contains("threshold")) {
    low = std::min(low, measure.at("threshold").get<double>());
    high = std::max(high, measure.at("threshold").get<double>());
  }
  if (!std::isfinite(low) || !std::isfinite(high) || low >= high) return "";
  const auto at = [&](double value) { return format_fixed(4 + (kWidth - 8) * (value - low) / (high - low), 1); };
  const auto place = [&](const char* percent) { return at(percentiles.at(percent).get<double>()); };
  const double box = std::strtod(place("75").c_str(), nullptr) - std::strtod(place("25").c_str(), nullptr);
  std::string svg = concat(
      "<svg width=\"", kWidth, "\" height=\"22\" role=\"img\" aria-label=\"percentiles\"><line x1=\"", place("1"),
      "\" x2=\"", place("99"), "\" y1=\"11\" y2=\"11\" stroke=\"currentColor\"/>", "<rect x=\"", place("25"),
      "\" y=\"5\" width=\"", format_fixed(std::max(box, 1.0), 1), "\" height=\"12\" fill=\"var(--kept)\"/><line x1=\"",
      place("50"), "\" x2=\"", place("50"), "\" y1=\"3\" y2=\"19\" stroke=\"currentColor\" stroke-width=\"2\"/>");
  if (measure.contains("threshold")) {
    const std::string x = at(measure.at("threshold").get<double>());
    svg +=
        concat("<line x1=\"", x, "\" x2=\"", x, "\" y1=\"0\" y2=\"22\" stroke=\"var(--dropped)\" stroke-width=\"2\"/>");
  }
  return svg + "</svg>";
}

void append_measures(const Json& step, std::string& page) {
  if (!step.contains("measures")) return;
  page += "<div class=\"scroll\"><table>\n<tr><th>measure</th><th></th><th>drops</th><th>of documents</th>";
  for (const auto& [percent, value] : step.at("measures")[0].at("percentiles").items())
    page += concat("<th>", percent, " %</th>");
  page += "</tr>\n";
  for (const Json& measure : step.at("measures")) {
    const bool drops = measure.contains("threshold");
    page += concat("<tr><td>", escaped_text(measure.at("measure")), "</td><td>", box_plot(measure), "</td><td>",
                   drops ? escaped_text(measure.at("drops")) + " " + number(measure.at("threshold")) : "-", "</td><td>",
                   drops ? share(measure.at("beyond"), measure.at("documents")) : "-", "</td>");
    for (const auto& [percent, value] : measure.at("percentiles").items())
      page += concat("<td>", number(value), "</td>");
    page += "</tr>\n";
  }
  page += "</table></div>\n";
}

bool continues(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80;
}

// Both texts with what differs between their common ends marked.
void append_change(std::string_view before, std::string_view after, std::string& page) {
  size_t begin = static_cast<size_t>(std::mismatch(before.begin(), before.end(), after.begin(), after.end()).first -
                                     before.begin());
  while (begin > 0 && (continues(before, begin) || continues(after, begin))) --begin;
  size_t end = 0;  // bytes that both end with
  const size_t most = std::min(before.size(), after.size()) - begin;
  while (end < most && before[before.size() - 1 - end] == after[after.size() - 1 - end]) ++end;
  while (end > 0 && (continues(before, before.size() - end) || continues(after, after.size() - end))) --end;
  const auto marked = [&](std::string_view text, const char* tag) {
    const std::string_view middle = text.substr(begin, text.size() - begin - end);
    return concat("<pre>", escaped(text.substr(0, begin)), "<", tag, ">", escaped(middle), "</", tag, ">",
                  escaped(text.substr(text.size() - end)), "</pre>\n");
  };
  page += marked(before, "del") + marked(after, "ins");
}

void append_samples(const Json& step, std::string& page) {
  const Json& samples = step.at("samples");
  if (samples.empty()) return;
  page += concat("<details><summary>Samples (", samples.size(), ")</summary>\n");
  for (const Json& sample : samples) {
    const auto& reason = sample.at("reason").get_ref<const std::string&>();
    page += concat("<p class=\"note\">document ", sample.at("number").get<int64_t>(), ", ",
                   reason.empty() ? "changed" : "dropped: " + escaped(reason), "</p>\n");
    if (reason.empty())
      append_change(sample.at("before").get_ref<const std::string&>(), sample.at("after").get_ref<const std::string&>(),
                    page);
    else
      page += concat("<pre>", escaped_text(sample.at("before")), "</pre>\n");
  }
  page += "</details>\n";
}

void append_facts(const Json& step, std::string& page) {
  if (!step.contains("facts") || step.at("facts").empty()) return;
  page += concat("<details><summary>Facts</summary><pre>",
                 escaped(step.at("facts").dump(2, ' ', false, Json::error_handler_t::replace)), "</pre></details>\n");
}

std::string page_of(const Json& report) {
  const Json& input = report.at("input");
  std::string page = kHead;
  page += concat("<p>", count(input, "records"), " records, ", count(input, "documents"), " documents, ",
                 count(input, "malformed"), " records that are not documents.</p>\n");
  if (!input.at("first_malformed").empty()) {
    page += "<details><summary>Records that are not documents</summary>\n";
    for (const Json& description : input.at("first_malformed"))
      page += "<pre>" + escaped_text(description) + "</pre>\n";
    page += "</details>\n";
  }
  append_steps(report, page);
  append_outputs(report, page);
  append_mix(report, page);
  size_t place = 0;
  for (const Json& step : report.at("steps")) {
    page += concat("<h2>", ++place, ". ", escaped_text(step.at("step")), "</h2>\n");
    append_reasons(step, page);
    append_measures(step, page);
    append_facts(step, page);
    append_samples(step, page);
  }
  if (report.contains("forgotten"))
    page += concat("<h2>Forgotten</h2>\n<p>", report.at("forgotten").size(),
                   " documents were removed afterwards; the steps' counts are from before.</p>\n");
  return page + concat("<p class=\"note\">espalier ", escaped_text(report.at("version")), "</p>\n</body>\n</html>\n");
}

}  // namespace
}  // namespace html_report

std::string report_as_html(const nlohmann::ordered_json& report) { return html_report::page_of(report); }

}  // namespace espalier::curate
