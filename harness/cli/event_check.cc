#include "harness/cli/event_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "harness/cli/perfmon_folder.h"
#include "harness/cli/text.h"
#include "harness/cli/verb.h"
#include "pebs/arch/microarch.h"
#include "pebs/arch/perfmon/list_check.h"

namespace skidproof::cli {
namespace {

using arch::perfmon::ListCheck;
using arch::perfmon::ListDifference;

Expected<std::vector<const arch::Microarch*>> asked_rows(const std::string& microarch) {
  std::vector<const arch::Microarch*> rows = arch::perfmon::rows_with_lists();
  if (microarch.empty()) return rows;
  const arch::Microarch* row = SKIDPROOF_TRY(arch::find_microarch(microarch));
  std::erase_if(rows, [&](const arch::Microarch* each) { return each->name != row->name; });
  if (!rows.empty()) return rows;
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("Intel publishes no list of events of {}", row->title),
      "its events are the manual's, each with its source: list events --microarch " + microarch);
}

struct Checked {
  std::vector<ListCheck> lists;
  std::vector<std::string> absent;  // lists that the folder has no file of
};

Expected<Checked> checked(const EventCheckOptions& options) {
  const auto rows = SKIDPROOF_TRY(asked_rows(options.microarch));
  Checked all;
  if (options.perfmon.empty()) {
    for (const arch::Microarch* row : rows) all.lists.push_back(arch::perfmon::check_list(*row));
    return all;
  }
  const PerfmonFolder folder = SKIDPROOF_TRY(PerfmonFolder::open(options.perfmon));
  for (const arch::Microarch* row : rows) {
    const std::string path(row->events.origin()->path);
    const auto found = SKIDPROOF_TRY(folder.list(path));
    if (found) {
      all.lists.push_back(
          arch::perfmon::check_list(*row, found->list.source(), found->list.events()));
    } else {
      all.absent.push_back(path);
    }
  }
  if (!all.lists.empty()) return all;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' has none of: {}", options.perfmon, joined(all.absent)),
              "give a checkout of github.com/intel/perfmon");
}

results::Json json_of(const std::vector<ListDifference>& differences) {
  results::Json all = results::Json::array();
  for (const ListDifference& one : differences) {
    results::Json json = {{"event", one.event}, {"in_list", one.in_list}, {"in_row", one.in_row}};
    if (!one.source.empty()) json["source"] = one.source;
    if (!one.reason.empty()) json["reason"] = one.reason;
    all.push_back(std::move(json));
  }
  return all;
}

// Lists, their lines, precise ones, and what came of them.
struct Summary {
  size_t lists = 0, events = 0, precise = 0, missing = 0, wrong = 0, different = 0;
};

Summary summary_of(const std::vector<ListCheck>& lists) {
  Summary summary{.lists = lists.size()};
  for (const ListCheck& list : lists) {
    summary.events += list.events;
    summary.precise += list.precise;
    summary.missing += list.missing.size();
    summary.wrong += list.wrong.size();
    summary.different += list.different.size();
  }
  return summary;
}

results::Json json_of(const Checked& all, const Summary& summary) {
  results::Json lists = results::Json::array();
  for (const ListCheck& list : all.lists) {
    lists.push_back({{"row", list.row},
                     {"list", list.list},
                     {"events", list.events},
                     {"precise", list.precise},
                     {"missing", json_of(list.missing)},
                     {"wrong", json_of(list.wrong)},
                     {"different", json_of(list.different)}});
  }
  return {{"lists", lists},
          {"absent", all.absent},
          {"summary",
           {{"lists", summary.lists},
            {"events", summary.events},
            {"precise", summary.precise},
            {"missing", summary.missing},
            {"wrong", summary.wrong},
            {"differences", summary.different}}}};
}

void show_differences(const Text& text, Paint paint, const char* what,
                      const std::vector<ListDifference>& differences) {
  for (const ListDifference& one : differences) {
    text.line(fmt::format("  {} {}", text.paint(paint, what), text.paint(Paint::kBold, one.event)));
    text.line("    list: " + wrap(one.in_list, 10));
    text.line("    row:  " + wrap(one.in_row, 10));
    if (!one.reason.empty()) text.line("    why:  " + wrap(one.reason, 10));
    if (!one.source.empty()) text.line("    from: " + wrap(one.source, 10));
  }
}

}  // namespace

int check_events(const EventCheckOptions& options) {
  const auto all = checked(options);
  if (!all) return complain(all.error());
  const Summary summary = summary_of(all->lists);
  const int exit = summary.missing + summary.wrong == 0 ? kExitHeld : kExitPropertyFailed;
  if (!options.json.empty()) {
    if (auto written = write_document(options.json, json_of(*all, summary)); !written) {
      return complain(kExitHarnessFailed, written.error());
    }
    if (options.json == "-") return exit;
  }
  const Text text(stdout);
  for (const ListCheck& list : all->lists) {
    text.line(fmt::format("{}, {}: {}, {} precise, {} missing, {} wrong, {} different", list.row,
                          list.list, count_of(list.events, "event"), list.precise,
                          list.missing.size(), list.wrong.size(), list.different.size()));
    show_differences(text, Paint::kRed, "missing", list.missing);
    show_differences(text, Paint::kRed, "wrong", list.wrong);
    show_differences(text, Paint::kYellow, "different", list.different);
  }
  for (const std::string& path : all->absent) text.line(path + ": not there");
  text.line(fmt::format("{}, {}, {} precise: {} missing, {} wrong, {}",
                        count_of(summary.lists, "list"), count_of(summary.events, "event"),
                        summary.precise, summary.missing, summary.wrong,
                        count_of(summary.different, "difference")));
  return exit;
}

}  // namespace skidproof::cli
