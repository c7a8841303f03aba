#include "harness/cli/errata_inventory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "harness/cli/verb.h"
#include "harness/errata/formats.h"
#include "harness/errata/inventory.h"

namespace skidproof::cli {
namespace {

namespace fs = std::filesystem;
using arch::ErrataCatalogue;
using arch::Erratum;
using results::Json;

// Where its rows go: a hundred thousand lines are not forced to the disk one by one.
class Lines {
 public:
  static Expected<std::unique_ptr<Lines>> open(const std::string& path) {
    std::unique_ptr<Lines> lines(new Lines);
    lines->file_ = path == "-" ? stdout : std::fopen(path.c_str(), "w");
    lines->owned_ = path != "-";
    if (lines->file_ != nullptr) return lines;
    return fail(ErrorCode::kIo, fmt::format("cannot write '{}'", path),
                "name a file that can be written");
  }
  ~Lines() {
    if (owned_ && file_ != nullptr) std::fclose(file_);
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  void write(const std::string& text) { std::fwrite(text.data(), 1, text.size(), file_); }
  void row(const results::Row& row) {
    write(results::json_of(row).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  bool failed() { return std::fflush(file_) != 0 || std::ferror(file_) != 0; }

 private:
  Lines() = default;
  std::FILE* file_ = nullptr;
  bool owned_ = false;
};

void print_inventory(const Text& text, const ErrataCatalogue& catalogue,
                     errata::InventoryJudge& judge, uint64_t bad) {
  struct Sum {
    uint64_t exposed = 0, in_place = 0, fixed = 0, unknown = 0;
    std::map<uint64_t, std::string, std::greater<>> microcodes;  // by machines
  };
  std::map<std::string, Sum> sums;
  for (const results::ErrataSummaryRow& row : judge.summary()) {
    Sum& sum = sums[row.id];
    sum.exposed += row.exposed;
    sum.in_place += row.in_place;
    sum.fixed += row.fixed;
    sum.unknown += row.unknown;
    const uint64_t machines = row.exposed + row.in_place;
    if (machines == 0) continue;
    std::string& names = sum.microcodes[machines];
    names += (names.empty() ? "" : " ") + (row.microcode ? results::hex(*row.microcode) : "?");
  }
  std::vector<std::pair<std::string, Sum>> order(sums.begin(), sums.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.exposed, a.second.in_place) >
           std::pair(b.second.exposed, b.second.in_place);
  });
  Table table({false, true, true, true, true});
  const auto head = [&](const char* word) { return text.paint(Paint::kDim, word); };
  table.row({head("erratum"), head("exposed"), head("in place"), head("fixed"), head("unknown"),
             head("affected by microcode"), head("what it is")});
  constexpr size_t kMicrocodes = 3, kLongest = 40;
  for (const auto& [id, sum] : order) {
    if (sum.exposed + sum.in_place + sum.fixed == 0)
      continue;  // the sum below says how many are unknown
    std::string microcodes;
    size_t named = 0;
    for (const auto& [machines, names] : sum.microcodes) {
      if (++named > kMicrocodes) break;
      microcodes +=
          fmt::format("{}{:.{}}: {}", microcodes.empty() ? "" : ", ", names, kLongest, machines);
    }
    if (sum.microcodes.size() > kMicrocodes) microcodes += ", …";
    const Erratum* erratum = catalogue.find(id);
    table.row({text.paint(Paint::kBold, id), fmt::format("{}", sum.exposed),
               fmt::format("{}", sum.in_place), fmt::format("{}", sum.fixed),
               fmt::format("{}", sum.unknown), microcodes,
               erratum == nullptr ? "" : erratum->title});
  }
  table.print(text);
  const auto& machines = judge.by_verdict();
  text.line();
  text.line(fmt::format(
      "{}: {} exposed, {} of which something is unknown, {} with workarounds in place, {} clear{}",
      count_of(machines[0] + machines[1] + machines[2] + machines[3], "machine"), machines[2],
      machines[3], machines[1], machines[0],
      bad == 0 ? "" : fmt::format("; {} could not be read", count_of(bad, "line"))));
  text.line("Listed, not observed: nothing was run there.");
}

}  // namespace

int judge_inventory(const ErrataCatalogue& catalogue, const InventoryRequest& request) {
  std::ifstream file;
  if (request.path != "-") {
    std::error_code error;
    file.open(request.path, std::ios::binary);
    if (!file || fs::is_directory(request.path, error)) {
      return complain(kExitUsage, fmt::format("cannot read '{}'", request.path),
                      "name a file of JSON Lines or CSV, or - for standard input");
    }
  }
  std::istream& stream = request.path == "-" ? std::cin : file;
  if (request.path == "-") std::ios::sync_with_stdio(false);
  auto reader = errata::InventoryReader::open(stream);
  if (!reader) return cannot(reader.error());
  const Format format = request.format;
  std::string json = request.json;
  if (format == Format::kJson && json.empty()) json = "-";
  std::unique_ptr<Lines> lines, csv;
  if (!json.empty()) {
    auto opened = Lines::open(json);
    if (!opened) return cannot(opened.error());
    lines = std::move(*opened);
  }
  if (format == Format::kCsv) {
    csv = std::move(*Lines::open("-"));
    csv->write(errata::csv_header_of_inventory());
  }
  const Text text(json == "-" ? stderr : stdout);
  errata::InventoryJudge judge(catalogue, request.least);
  constexpr uint64_t kMostComplaints = 20;
  uint64_t bad = 0;
  while (auto next = reader->next()) {
    if (!*next) {
      if (++bad <= kMostComplaints) {
        complain(errata::kExitUnknown, errata::printable(next->error().message), {});
      }
      continue;
    }
    const auto row = judge.judge(**next);
    if (!row) continue;
    if (lines != nullptr) lines->row(*row);
    if (csv != nullptr) csv->write(errata::csv(*row));
    if (request.verbose && format == Format::kText) {
      text.line(fmt::format("{}  {} exposed, {} in place, {} fixed, {} unknown {}",
                            errata::printable(row->machine), row->exposed.size(),
                            row->in_place.size(), row->fixed.size(), row->unknown.size(),
                            row->reason));
    }
  }
  if (bad > kMostComplaints) {
    complain(errata::kExitUnknown,
             fmt::format("{} more lines could not be read", bad - kMostComplaints));
  }
  const auto& machines = judge.by_verdict();
  if (bad == 0 &&
      std::all_of(machines.begin(), machines.end(), [](uint64_t n) { return n == 0; })) {
    return complain(kExitUsage, "the inventory holds no machine", "one line for each, see --help");
  }
  for (const std::string& host : judge.backwards()) {
    fmt::print(stderr, "skidproof: note: microcode goes backwards on {}\n",
               errata::printable(host));
  }
  if (lines != nullptr) {
    for (const results::ErrataSummaryRow& row : judge.summary()) lines->row(row);
  }
  if (format == Format::kPrometheus)
    fmt::print("{}", errata::prometheus(judge.summary(), judge.by_verdict()));
  if (format == Format::kNrpe) fmt::print("{}", errata::nrpe(judge.by_verdict()));
  if (format == Format::kText) print_inventory(text, catalogue, judge, bad);
  if ((lines != nullptr && lines->failed()) || (csv != nullptr && csv->failed())) {
    return complain(errata::kExitUnknown, "not all rows could be written",
                    "make room, or let the reader read to the end");
  }
  if (machines[errata::kExitExposed] != 0) return errata::kExitExposed;
  if (machines[errata::kExitUnknown] != 0 || bad != 0) return errata::kExitUnknown;
  if (machines[errata::kExitInPlace] != 0) return errata::kExitInPlace;
  return errata::kExitNone;
}

}  // namespace skidproof::cli
