#include "harness/fuzz/describe.h"

#include <fmt/format.h>

#include <iterator>

#include "harness/fuzz/execute.h"
#include "pebs/arch/msr.h"
#include "pebs/arch/names.h"

namespace skidproof::fuzz {
namespace {

using namespace arch;

std::string select_text(uint64_t select, const Microarch& microarch) {
  const Event* event =
      microarch.event(static_cast<uint8_t>(select), static_cast<uint8_t>(select >> 8));
  std::string text(event == nullptr ? "no published event" : event->name);
  constexpr struct {
    uint64_t mask;
    const char* name;
  } kBits[] = {{evtsel::kUsr, "USR"},
               {evtsel::kOs, "OS"},
               {evtsel::kEdge, "edge"},
               {evtsel::kInt, "INT"},
               {evtsel::kAnyThread, "AnyThread"},
               {evtsel::kInvert, "INV"}};
  for (const auto& b : kBits) {
    if ((select & b.mask) != 0) fmt::format_to(std::back_inserter(text), " {}", b.name);
  }
  const uint64_t cmask = (select & evtsel::kCmask) >> evtsel::kCmaskShift;
  if (cmask != 0) fmt::format_to(std::back_inserter(text), " CMASK={}", cmask);
  if ((select & evtsel::kEnable) == 0) text += ", not enabled";
  return text;
}

std::string step_text(const Step& step, const Microarch& microarch) {
  switch (step.kind) {
    case Step::Kind::kRewind:
      return "PEBS index := base";
    case Step::Kind::kRun:
      return fmt::format("run: GLOBAL_CTRL {:#x}, {} iteration{}, CPL {}{}{}", step.value,
                         step.iterations, step.iterations == 1 ? "" : "s", step.user ? 3 : 0,
                         step.unmask ? ", handler unmasks" : "",
                         step.clear_status ? ", handler clears status" : "");
    case Step::Kind::kWrite:
      break;
  }
  std::string text = fmt::format("{} := {:#x}", msr_name(step.msr), step.value);
  if (step.msr >= IA32_PERFEVTSEL0 && step.msr < IA32_PERFEVTSEL0 + 8) {
    fmt::format_to(std::back_inserter(text), "  ({})", select_text(step.value, microarch));
  }
  return text;
}

}  // namespace

std::vector<std::string> programme_text(const Case& c, const Microarch& microarch) {
  std::vector<std::string> lines;
  std::string ds = fmt::format("DS area: index {}, maximum {}, threshold {}", c.ds.index,
                               c.ds.maximum, c.ds.threshold);
  for (size_t n = 0; n < c.ds.resets.size(); ++n) {
    if (c.ds.resets[n] == 0) continue;
    fmt::format_to(std::back_inserter(ds), ", reset {} {}", n,
                   static_cast<int64_t>(c.ds.resets[n]));
  }
  lines.push_back(std::move(ds));
  for (const Step& step : c.steps) lines.push_back(step_text(step, microarch));
  return lines;
}

std::vector<std::string> code_text(const Case& c) {
  std::vector<std::string> lines;
  const auto program = Executor::program_of(c);
  if (!program) return lines;
  for (const Instruction& i : program->instructions) {
    lines.push_back(fmt::format("+{:#04x}  {}", i.address, i.text));
  }
  return lines;
}

Json replay_document(const Case& c, const Violation& violation) {
  Json json = {{"check", name_of(violation.check)}, {"clause", violation.clause->id},
               {"promise", violation.clause->text}, {"step", violation.step},
               {"expected", violation.expected},    {"seen", violation.seen}};
  json["instructions"] = code_text(c);
  json["case"] = json_of(c);
  return json;
}

}  // namespace skidproof::fuzz
