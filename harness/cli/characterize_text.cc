// Sheet and tables.
#include "harness/cli/characterize_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "harness/run/noise.h"

namespace skidproof::cli {
namespace {

std::string bytes_text(uint64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 8 << 20) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

std::string text_of(const std::string& key, const ParameterValue& value) {
  if (const auto* number = std::get_if<uint64_t>(&value)) {
    return key == "bytes" ? bytes_text(*number) : fmt::format("{}", *number);
  }
  if (const auto* real = std::get_if<double>(&value)) return fmt::format("{:.4g}", *real);
  return std::get<std::string>(value);
}

std::string value_text(const Measurement& measured) {
  return fmt::format("{:.4g} {}  ({:.4g} to {:.4g})", measured.value, measured.unit, measured.low,
                     measured.high);
}

// One table for each name: its parameters, then a column for each unit that it was measured in.
void print_group(const Text& text, const std::string& name,
                 const std::vector<const Measurement*>& group) {
  std::set<std::string> keys, units;
  std::vector<const MeasurementParameters*> order;
  std::map<std::pair<std::string, std::string>, const Measurement*> cells;  // parameters, unit
  const auto id_of = [](const MeasurementParameters& parameters) {
    std::string id;
    for (const auto& [key, value] : parameters) id += key + "=" + text_of(key, value) + ";";
    return id;
  };
  for (const Measurement* measured : group) {
    for (const auto& [key, value] : measured->parameters) keys.insert(key);
    units.insert(measured->unit);
    const std::string id = id_of(measured->parameters);
    bool known = false;
    for (const std::string& unit : units) known = known || cells.contains({id, unit});
    if (!known) order.push_back(&measured->parameters);
    cells[{id, measured->unit}] = measured;
  }
  text.line();
  text.line(text.paint(Paint::kBold, name));
  Table table;
  if (!keys.empty()) {
    std::vector<std::string> head;
    head.reserve(keys.size() + 1);
    for (const std::string& key : keys) head.push_back(text.paint(Paint::kDim, key));
    head.push_back(text.paint(Paint::kDim, "median (95% interval)"));
    table.row(std::move(head));
  }
  for (const MeasurementParameters* parameters : order) {
    std::vector<std::string> line;
    for (const std::string& key : keys) {
      const auto found = parameters->find(key);
      line.push_back(found == parameters->end() ? "" : text_of(key, found->second));
    }
    for (const std::string& unit : units) {
      const auto found = cells.find({id_of(*parameters), unit});
      line.push_back(found == cells.end() ? "" : value_text(*found->second));
    }
    table.row(std::move(line));
  }
  table.print(text, 2);
}

}  // namespace

void print_everything(const Text& text, const Characterization& measured_all) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<const Measurement*>> groups;
  for (const Measurement& measured : measured_all.measurements) {
    if (measured.unit == "bool") continue;  // the verdict column of its gain says the same
    auto& group = groups[measured.name];
    if (group.empty()) names.push_back(measured.name);
    group.push_back(&measured);
  }
  for (const std::string& name : names) print_group(text, name, groups[name]);
}

// ---------------------------------------------------------------------------------------------------
// The sheet.

namespace {

const ParameterValue* parameter(const Measurement& m, std::string_view key) {
  const auto found = m.parameters.find(key);
  return found == m.parameters.end() ? nullptr : &found->second;
}
std::string parameter_text(const Measurement& m, const std::string& key) {
  const ParameterValue* value = parameter(m, key);
  return value == nullptr ? "" : text_of(key, *value);
}
uint64_t number_of(const Measurement& m, std::string_view key) {
  const ParameterValue* value = parameter(m, key);
  const auto* number = value == nullptr ? nullptr : std::get_if<uint64_t>(value);
  return number == nullptr ? 0 : *number;
}

// So half of its samples are, or more.
bool mostly(const Measurement& m, std::string_view how) { return 2 * number_of(m, how) >= m.n; }
std::string_view mark_of(const Measurement& m) {
  return mostly(m, "disturbed") || mostly(m, "in_company") ? "~" : "";
}

struct Label {
  std::string_view name, text;
};
// In the order of the sheet; what is not here comes behind, by its name.
constexpr auto kShapes = std::to_array<Label>({
    {"shape.l1d.size", "L1 data cache"},
    {"shape.l1d.ways", "  ways"},
    {"shape.line", "  line"},
    {"shape.l2.size", "L2 cache"},
    {"shape.l2.ways", "  ways"},
    {"shape.l3.size", "L3 cache"},
    {"shape.dtlb.reach", "DTLB, 4 KiB pages"},
    {"shape.stlb.reach", "second-level TLB"},
    {"shape.tlb.walk", "page walk"},
    {"shape.rob.size", "reorder buffer"},
    {"shape.scheduler.size", "scheduler"},
    {"shape.vector_scheduler.size", "  of vectors"},
    {"shape.load_queue.size", "load queue"},
    {"shape.store_queue.size", "store queue"},
    {"shape.int_registers.size", "integer registers"},
    {"shape.vector_registers.size", "vector registers"},
    {"shape.vector256_registers.size", "  of 32 bytes"},
    {"shape.move_elimination.mov", "MOV without a cycle"},
    {"shape.move_elimination.movaps", "MOVAPS without a cycle"},
    {"shape.zeroing_idiom.xor", "XOR to zero at rename"},
    {"shape.zeroing_idiom.pxor", "PXOR to zero at rename"},
    {"shape.immediate_at_rename.add", "ADD of constants at rename"},
    {"shape.code.reach", "straight code"},
    {"shape.uop_cache.reach", "uop cache"},
    {"shape.btb.reach", "branch targets"},
    {"shape.return_stack.depth", "return stack"},
    {"shape.history.length", "branch history"},
    {"shape.pattern.length", "learned pattern"},
    {"shape.indirect.targets", "indirect targets"},
});
std::string label_of(const std::string& name) {
  for (const Label& label : kShapes) {
    if (label.name == name) return std::string(label.text);
  }
  return name.substr(std::string_view("shape.").size());
}
size_t rank_of(const std::string& name) {
  const auto* found =
      std::find_if(kShapes.begin(), kShapes.end(), [&](const Label& l) { return l.name == name; });
  return static_cast<size_t>(found - kShapes.begin());
}

std::string amount(double value, const std::string& unit) {
  if (unit == "bool") return value != 0 ? "yes" : "no";
  if (unit == "bytes") return bytes_text(static_cast<uint64_t>(value));
  return fmt::format("{:.6g} {}", value, unit);
}

void print_shape(const Text& text, const Characterization& all) {
  struct Line {
    std::string name, value, beside;
  };
  std::vector<Line> lines;
  for (const Measurement& m : all.measurements) {
    if (!m.name.starts_with("shape.")) continue;
    std::string beside;
    for (const char* key : {"told", "published"}) {
      if (parameter(m, key) == nullptr) continue;
      const std::string source = parameter_text(m, "source");
      beside = amount(static_cast<double>(number_of(m, key)), m.unit) +
               (source.empty() ? "" : ", says " + source);
    }
    std::string value = amount(m.value, m.unit);
    if (m.name == "shape.l3.size") value = amount(m.low, m.unit) + " to " + amount(m.high, m.unit);
    // Further parameters tell several of one name apart.
    const auto namesakes =
        std::count_if(all.measurements.begin(), all.measurements.end(),
                      [&](const Measurement& other) { return other.name == m.name; });
    for (const auto& [key, v] : m.parameters) {
      if (namesakes > 1 && key != "told" && key != "published" && key != "source")
        value += fmt::format("  ({} {})", key, text_of(key, v));
    }
    lines.push_back({m.name, value, beside});
  }
  for (const Unclear& u : all.unclear) lines.push_back({u.name, "not clear", u.reason});
  if (lines.empty()) return;
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line& a, const Line& b) { return rank_of(a.name) < rank_of(b.name); });
  text.line();
  text.line(text.paint(Paint::kBold, "Inferred"));
  Table table;
  for (const Line& line : lines) {
    // What is long stands in the rows.
    const std::string beside =
        width_of(line.beside) <= 60 ? line.beside : line.beside.substr(0, 57) + "…";
    const bool clear = line.value != "not clear";
    table.row({label_of(line.name), clear ? line.value : text.paint(Paint::kYellow, line.value),
               text.paint(Paint::kDim, beside)});
  }
  table.print(text, 2);
}

// A working set, and the level that it lies well inside of; no level where that is not known.
struct Shown {
  std::string level;  // "L2"
  uint64_t bytes = 0;
  std::string text() const {
    return (level.empty() ? std::string() : level + ", ") + bytes_text(bytes);
  }
};

// In each level whose size was inferred one that is at most half of it and at least twice the level before; four times the
// last level for memory. Beyond the last size that is clear: sizes that fit most machines, whatever answers there.
std::vector<Shown> levels_of(const Characterization& all, const std::string& name) {
  std::set<uint64_t> measured;
  for (const Measurement& m : all.measurements) {
    if (m.name == name) measured.insert(number_of(m, "bytes"));
  }
  std::vector<Shown> shown;
  uint64_t beyond = 0;  // twice the level before
  bool clear = true;
  for (const auto& [shape, level] :
       {std::pair{"shape.l1d.size", "L1"}, std::pair{"shape.l2.size", "L2"},
        std::pair{"shape.l3.size", "L3"}}) {
    const auto size = std::find_if(
        all.measurements.begin(), all.measurements.end(),
        [name_of_size = shape](const Measurement& m) { return m.name == name_of_size; });
    clear = clear && size != all.measurements.end();
    if (!clear) break;
    const auto end = measured.upper_bound(static_cast<uint64_t>(size->low / 2));
    if (end != measured.begin() && *std::prev(end) >= beyond)
      shown.push_back({level, *std::prev(end)});
    beyond = static_cast<uint64_t>(2 * size->high);
  }
  for (uint64_t wanted :
       {uint64_t{16} << 10, uint64_t{256} << 10, uint64_t{4} << 20, uint64_t{64} << 20}) {
    if (!clear && wanted >= beyond && measured.contains(wanted)) shown.push_back({"", wanted});
  }
  if (!measured.empty() && (shown.empty() || *measured.rbegin() > shown.back().bytes)) {
    const uint64_t largest = *measured.rbegin();
    shown.push_back({clear && largest >= 2 * beyond ? "memory" : "", largest});
  }
  return shown;
}

void print_latency(const Text& text, const Characterization& all) {
  const std::vector<Shown> sizes = levels_of(all, "memory.latency");
  if (sizes.empty()) return;
  text.line();
  text.line(text.paint(Paint::kBold, "Latency of a load"));
  Table table({false, true, true, true, true});
  table.row({text.paint(Paint::kDim, "working set"), text.paint(Paint::kDim, "4 KiB pages"), "",
             text.paint(Paint::kDim, "2 MiB pages"), ""});
  for (const Shown& at : sizes) {
    const uint64_t bytes = at.bytes;
    std::vector<std::string> line = {at.text()};
    for (const char* page : {"4KiB", "2MiB"}) {
      for (const char* unit : {"cycles", "ns"}) {
        std::string cell;
        for (const Measurement& m : all.measurements) {
          if (m.name == "memory.latency" && m.unit == unit && number_of(m, "bytes") == bytes &&
              parameter_text(m, "page") == page) {
            cell = fmt::format("{}{:.{}f} {}", mark_of(m), m.value, m.value < 100 ? 1 : 0, unit);
          }
        }
        line.push_back(cell);
      }
    }
    table.row(std::move(line));
  }
  table.print(text, 2);
}

void print_bandwidth(const Text& text, const Characterization& all) {
  const std::vector<Shown> sizes = levels_of(all, "load.bandwidth");
  if (sizes.empty()) return;
  text.line();
  text.line(text.paint(Paint::kBold, "Bandwidth of one CPU, the best kind of each"));
  Table table({false, true, false, true, false, true, false});
  table.row({text.paint(Paint::kDim, "working set"), text.paint(Paint::kDim, "load"), "",
             text.paint(Paint::kDim, "store"), "", text.paint(Paint::kDim, "copy"), ""});
  for (const Shown& at : sizes) {
    const uint64_t bytes = at.bytes;
    std::vector<std::string> line = {at.text()};
    for (const char* name : {"load.bandwidth", "store.bandwidth", "copy.bandwidth"}) {
      const Measurement* best = nullptr;
      for (const Measurement& m : all.measurements) {
        if (m.name == name && m.unit == "GB/s" && number_of(m, "bytes") == bytes &&
            (best == nullptr || m.value > best->value))
          best = &m;
      }
      line.push_back(best == nullptr ? ""
                                     : fmt::format("{}{:.{}f} GB/s", mark_of(*best), best->value,
                                                   best->value < 100 ? 1 : 0));
      line.push_back(best == nullptr ? "" : text.paint(Paint::kDim, parameter_text(*best, "kind")));
    }
    table.row(std::move(line));
  }
  table.print(text, 2);
}

// Pairs by verdict, in as few words as tell them all.
void print_fusion(const Text& text, const Characterization& all) {
  std::map<std::string, unsigned> verdicts;
  for (const Measurement& m : all.measurements) {
    if (m.name == "fusion.gain") ++verdicts[parameter_text(m, "verdict")];
  }
  if (verdicts.empty()) return;
  std::vector<std::string> words;
  words.reserve(verdicts.size());
  for (const auto& [verdict, count] : verdicts)
    words.push_back(fmt::format("{} {}", count, verdict));
  text.line(fmt::format("  macro-fusion of pairs: {}", joined(words)));
}

void print_single_figures(const Text& text, const Characterization& all) {
  bool headed = false;
  Table table;
  for (const Measurement& m : all.measurements) {
    const bool single = m.name.starts_with("clock.") || m.name == "tlb.walk" ||
                        (m.name == "branch.mispredict_penalty" && m.unit == "cycles");
    if (!single) continue;
    if (!headed) {
      text.line();
      text.line(text.paint(Paint::kBold, "Core"));
      headed = true;
    }
    table.row({m.name, std::string(mark_of(m)) + value_text(m)});
  }
  table.print(text, 2);
}

}  // namespace

void print_sheet(const Text& text, const Characterization& measured) {
  print_shape(text, measured);
  print_latency(text, measured);
  print_bandwidth(text, measured);
  print_single_figures(text, measured);
  print_fusion(text, measured);
}

namespace {

constexpr size_t kMostContradicted = 8;  // that are named

// Of the rows of one check: "1,234 of 1,240 runs agree".
std::string agreement_of(const Characterization& all, std::string_view name) {
  double agree = 0;
  uint64_t n = 0;
  std::string_view of;
  for (const Measurement& m : all.measurements) {
    if (m.name != name) continue;
    agree += m.value * static_cast<double>(m.n);
    n += m.n;
    of = m.statistic.ends_with("runs") ? "runs" : "samples";
  }
  if (n == 0) return "";
  return fmt::format("{:.0f} of {} {}", agree, n, of);
}

}  // namespace

void print_counts(const Text& text, const Characterization& measured) {
  const std::string instructions = agreement_of(measured, "check.instructions");
  if (instructions.empty()) return;
  text.line();
  text.line(text.paint(Paint::kBold, "Counted beside the time"));
  Table table;
  table.row({"instructions as programs declare", instructions});
  const std::string cycles = agreement_of(measured, "check.cycles");
  if (!cycles.empty()) table.row({"cycles as by the TSC", cycles});
  std::vector<std::string> checks, contradicted;
  for (const Measurement& m : measured.measurements) {
    if (m.name == "check.chain") {
      table.row({"an ADD of the clock's chain", fmt::format("{:.4g} cycles", m.value)});
    }
    if (!m.counts || m.counts->agree.value_or(true)) continue;
    std::string where;
    for (const auto& [key, value] : m.parameters)
      where += fmt::format(" {}={}", key, text_of(key, value));
    auto& list = m.name.starts_with("check.") ? checks : contradicted;
    list.push_back(fmt::format("{}{}: {}", m.name, where, m.counts->differ));
  }
  table.print(text, 2);
  for (const std::string& check : checks) text.line("  " + wrap(check, 4));
  if (contradicted.empty()) return;
  text.line(text.paint(Paint::kYellow, fmt::format("  contradicted by its counters: {}",
                                                   count_of(contradicted.size(), "figure"))));
  for (size_t i = 0; i < contradicted.size() && i < kMostContradicted; ++i)
    text.line("    " + wrap(contradicted[i], 6));
  if (contradicted.size() > kMostContradicted) text.line("    … all of them: in the rows");
}

void print_noise(const Text& text, const Characterization& all) {
  Noise sum;
  size_t spoiled = 0, in_company = 0, sampled = 0;
  for (const Measurement& measured : all.measurements) {
    sum = sum + measured.noise;
    sampled += measured.statistic == "median" || measured.statistic.ends_with("quartile");
    spoiled += mostly(measured, "disturbed");
    in_company += mostly(measured, "in_company");
  }
  text.line();
  text.line(fmt::format(
      "Noise: {} of disturbed runs thrown away ({}, {}), {:.2f} s stolen by the hypervisor",
      sum.repeats, count_of(sum.interrupted, "with an interrupt", "with interrupts"),
      count_of(sum.involuntary_switches, "involuntary switch", "involuntary switches"),
      sum.steal_s));
  if (all.quota) {
    text.line(fmt::format(
        "CPU quota: control group {} may use {:.3g} ms of CPU time in {:.3g} ms; it was stopped {} "
        "times, {:.2f} s in all",
        all.quota->group, 1e3 * all.quota->runtime_s, 1e3 * all.quota->period_s,
        all.throttled.times, all.throttled.seconds));
  }
  if (spoiled != 0) {
    text.line(text.paint(
        Paint::kYellow,
        fmt::format("Disturbed: in half of the samples of {} of {} figures (~ above), or in more, "
                    "no run had the CPU to itself: they cost too much, nobody knows by how much",
                    spoiled, sampled)));
  }
  if (in_company != 0) {
    text.line(text.paint(
        Paint::kYellow,
        fmt::format("In company: beside half of the samples of {} of {} figures (~ above), or "
                    "more, another thread of the core was busy: they cost too much",
                    in_company, sampled)));
  }
}

std::vector<Error> grouped(const std::vector<Error>& problems) {
  struct Alike {
    Error first;
    std::string last;
    size_t count = 0;
  };
  std::vector<Alike> kinds;
  for (const Error& problem : problems) {
    const auto same = std::find_if(kinds.begin(), kinds.end(), [&](const Alike& kind) {
      return kind.first.code == problem.code && !problem.advice.empty() &&
             kind.first.advice == problem.advice;
    });
    Alike& kind = same != kinds.end() ? *same : kinds.emplace_back(Alike{problem, {}, 0});
    ++kind.count;
    kind.last = problem.message;
  }
  std::vector<Error> each;
  for (Alike& kind : kinds) {
    if (kind.count == 2) kind.first.message += "; " + kind.last;
    if (kind.count > 2) {
      kind.first.message +=
          fmt::format("; and {} more such, the last: {}", kind.count - 1, kind.last);
    }
    each.push_back(std::move(kind.first));
  }
  return each;
}

}  // namespace skidproof::cli
