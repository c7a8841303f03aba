// Latency and reciprocal throughput of common instructions: a chain of copies that wait for one another, and copies that do
// not (kernels/instruction_table.cc).
#include "harness/characterize/instructions.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "harness/characterize/company.h"
#include "harness/characterize/parts.h"
#include "harness/characterize/plan.h"
#include "harness/characterize/reach.h"
#include "harness/stats/robust.h"

namespace skidproof {
namespace {

// Few enough for any cache of decoded instructions, and enough that the loop's own pair counts little.
constexpr uint64_t kInstructionCopies = 128;
constexpr double kInstructionNs = 10e3;
constexpr unsigned kInstructionTries = 4;

// What else stands in a link of the chain, whose latency is subtracted.
struct Helper {
  const char* instruction;
  std::array<const char*, 2> others;
};
constexpr std::array kHelpers = {
    Helper{"div32", {"and", "or"}},  Helper{"div64", {"and", "or"}},
    Helper{"idiv32", {"and", "or"}}, Helper{"idiv64", {"and", "or"}},
    Helper{"sqrtps", {"mulps", ""}}, Helper{"sqrtsd", {"mulsd", ""}},
};

// For a quick look: one of each kind.
constexpr std::array kQuickInstructions = {
    "add",  "and",   "or",     "imul",     "lea_3",     "popcnt", "div64", "mov",   "nop",
    "load", "store", "movaps", "xor_zero", "pxor_zero", "paddd",  "mulps", "mulsd", "vfmadd_256"};

struct InstructionTrial {
  std::string instruction;
  bool chain = false;
  Workpiece piece;
  uint64_t iterations = 1;
};

std::vector<std::string> instructions_for(Effort effort, const Kernel& kernel) {
  if (effort == Effort::kQuick) return {kQuickInstructions.begin(), kQuickInstructions.end()};
  return kernel.parameters[0].words;
}

// Nothing where the table has no such order of it, or this CPU not the instruction.
Expected<std::shared_ptr<InstructionTrial>> make_instruction_trial(const Workbench& bench,
                                                                   const Kernel& kernel,
                                                                   const std::string& instruction,
                                                                   bool chain, const Memory& data) {
  const std::string parameters = fmt::format("instruction={},order={},copies={}", instruction,
                                             chain ? "chain" : "independent", kInstructionCopies);
  const Params params = SKIDPROOF_TRY(Params::parse(kernel.parameters, parameters));
  if (!kernel.check(params)) return std::shared_ptr<InstructionTrial>();
  for (Isa isa : kernel.needs(params)) {
    if (!host_supports(isa)) return std::shared_ptr<InstructionTrial>();
  }
  auto trial = std::make_shared<InstructionTrial>();
  trial->instruction = instruction;
  trial->chain = chain;
  trial->piece = SKIDPROOF_TRY(bench.prepare("instruction_table", parameters, data));
  trial->iterations = SKIDPROOF_TRY(bench.iterations_for(kInstructionNs, trial->piece));
  return trial;
}

Point point_of(const Workbench& bench, const std::shared_ptr<Company>& company,
               const std::shared_ptr<InstructionTrial>& at) {
  Point point;
  point.what = fmt::format("{}, {}", at->instruction, at->chain ? "latency" : "throughput");
  point.scale = 1;  // what is nearly free needs no finer interval than a cycle's share
  point.sample = [&bench, company, at]() -> Expected<Sample> {
    const auto once = [&] { return bench.sample(kInstructionTries, at->piece, at->iterations); };
    // What waits for itself is as fast in company as alone.
    const Sample sample = at->chain ? SKIDPROOF_TRY(once()) : SKIDPROOF_TRY(company->watch(once));
    return sample.per(static_cast<double>(at->iterations * kInstructionCopies));
  };
  return point;
}

// Samples without the helpers' latencies; nothing where one of these was not measured.
std::optional<std::vector<double>> without_helpers(const std::string& instruction,
                                                   std::vector<double> cycles,
                                                   const std::map<std::string, double>& latencies) {
  for (const Helper& helper : kHelpers) {
    if (instruction != helper.instruction) continue;
    for (const std::string other : helper.others) {
      if (other.empty()) continue;
      const auto found = latencies.find(other);
      if (found == latencies.end()) return std::nullopt;
      for (double& value : cycles) value -= found->second;
    }
  }
  return cycles;
}

void emit_latencies(const Workbench& bench, const std::vector<Point>& points,
                    const std::vector<std::shared_ptr<InstructionTrial>>& trials) {
  std::map<std::string, double> latencies;
  for (const Point& point : points) {
    if (trials[point.tag]->chain) latencies[trials[point.tag]->instruction] = point.median_cycles();
  }
  for (const Point& point : points) {
    const InstructionTrial& trial = *trials[point.tag];
    if (!trial.chain || point.cycles.empty()) continue;
    const auto cycles = without_helpers(trial.instruction, point.cycles, latencies);
    if (!cycles) continue;
    Measurement row = median_measurement("instruction.latency", "cycles", *cycles,
                                         {{"instruction", trial.instruction}}, point.noise);
    row.counts = counts_of(bench, point, point.cycles);
    bench.emit(std::move(row));
  }
}

void emit_throughputs(const Workbench& bench, const std::vector<Point>& points,
                      const std::vector<std::shared_ptr<InstructionTrial>>& trials) {
  for (const Point& point : points) {
    const InstructionTrial& trial = *trials[point.tag];
    if (trial.chain || point.cycles.empty()) continue;
    emit_point(bench, point, "instruction.throughput", {{"instruction", trial.instruction}},
               In::kCycles);
  }
}

struct Question {
  const char* instruction;
  const char* shape;
  const char* of;
  const char* reference;
};
constexpr std::array kQuestions = {
    Question{"mov", "move_elimination", "mov", "and"},
    Question{"movaps", "move_elimination", "movaps", "paddd"},
    Question{"xor_zero", "zeroing_idiom", "xor", "and"},
    Question{"pxor_zero", "zeroing_idiom", "pxor", "paddd"},
    Question{"add_imm", "immediate_at_rename", "add", "add"},
};

void emit_verdicts(const Workbench& bench, const std::vector<Point>& points,
                   const std::vector<std::shared_ptr<InstructionTrial>>& trials) {
  std::map<std::string, const Point*> chains;
  for (const Point& point : points) {
    if (trials[point.tag]->chain) chains[trials[point.tag]->instruction] = &point;
  }
  for (const Question& question : kQuestions) {
    const auto asked = chains.find(question.instruction),
               reference = chains.find(question.reference);
    if (asked == chains.end() || reference == chains.end()) continue;
    const stats::Summary took = stats::summarize(asked->second->cycles);
    const auto verdict =
        free_of_cost(took.interval.low, took.interval.high, reference->second->median_cycles());
    if (!verdict) {
      bench.unclear(
          fmt::format("shape.{}.{}", question.shape, question.of),
          fmt::format(
              "a link of the chain takes {:.2f} cycles ({:.2f} to {:.2f}): some of them are",
              took.median, took.interval.low, took.interval.high));
      continue;
    }
    const double free = *verdict ? 1 : 0;
    emit_inferred(bench, {.name = fmt::format("{}.{}", question.shape, question.of),
                          .unit = "bool",
                          .value = free,
                          .low = free,
                          .high = free,
                          .n = asked->second->cycles.size(),
                          .interval = "exact",
                          .parameters = {{"instruction", question.instruction}},
                          .noise = asked->second->noise});
  }
}

}  // namespace

std::optional<bool> free_of_cost(double low, double high, double cycle) {
  if (high <= 0.6 * cycle) return true;
  if (low >= 0.85 * cycle) return false;
  return std::nullopt;
}

Expected<void> characterize_instructions(Workbench& bench) {
  SKIDPROOF_CHECK(bench.count({arch::Signal::kUops}));
  const Kernel& kernel = *SKIDPROOF_TRY(find_kernel("instruction_table"));
  const auto company = std::make_shared<Company>(SKIDPROOF_TRY(Company::create(bench)));
  company->set_patience(bench.seconds_of_part() / 2);
  const Memory data = SKIDPROOF_TRY(bench.allocate(4096, false));
  std::vector<Point> points;
  std::vector<std::shared_ptr<InstructionTrial>> trials;
  for (const std::string& instruction : instructions_for(bench.effort(), kernel)) {
    for (bool chain : {true, false}) {
      if (bench.cancelled()) return {};
      auto trial = make_instruction_trial(bench, kernel, instruction, chain, data);
      if (!trial) {
        bench.problem(trial.error());
        continue;
      }
      if (*trial == nullptr) continue;
      points.push_back(point_of(bench, company, *trial));
      points.back().tag = trials.size();
      trials.push_back(*trial);
    }
  }
  SKIDPROOF_CHECK(take_by_turns(bench, points, {.relative = 0.01}));
  for (Point& point : points) company->drop_from(point);
  emit_latencies(bench, points, trials);
  emit_throughputs(bench, points, trials);
  emit_verdicts(bench, points, trials);
  return {};
}

}  // namespace skidproof
