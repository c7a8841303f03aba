// Macro-fusion: which pairs of a flag-setting instruction and a conditional jump are one uop.
//
// The same two instructions are run adjacent and with a no-operation between them, so that all that can
// differ is the uop that fusion saves.
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/check/check.h"
#include "suites/exact.h"
#include "suites/sampling.h"

namespace skidproof::check::macro_fusion {
namespace {

using namespace suites;
using arch::FusionFirst;
using arch::Signal;

// So many that what starting and stopping adds to a count stays far below one uop for each.
constexpr uint64_t kIterations = 256;
constexpr const char* kConditions[] = {"o", "no", "b", "ae", "e", "ne", "be", "a",
                                       "s", "ns", "p", "np", "l", "ge", "le", "g"};
constexpr char kNoUops[] = "no event counts uops";
constexpr char kUnpublished[] = "no source says which pairs this microarch fuses";
#define SKIDPROOF_REQUIRE_RULES() \
  SKIDPROOF_REQUIRE(uarch().fusion_published, SkipCategory::kNoPromise, kUnpublished)

FusionFirst kind_of(std::string_view first) {
  if (first == "cmp") return FusionFirst::kCmp;
  if (first == "test") return FusionFirst::kTest;
  if (first == "and") return FusionFirst::kAnd;
  if (first == "add") return FusionFirst::kAdd;
  if (first == "sub") return FusionFirst::kSub;
  if (first == "inc") return FusionFirst::kInc;
  if (first == "dec") return FusionFirst::kDec;
  return FusionFirst::kNone;
}

// What the first instruction's operands are in a form of the kernel.
struct Operands {
  bool reads_memory, writes_memory, immediate;
};
Operands operands_of(std::string_view first, std::string_view form) {
  const bool memory = form == "mem_reg" || form == "mem_imm";
  const bool writes = first != "cmp" && first != "test";
  const bool unary = first == "inc" || first == "dec" || first == "neg" || first == "shl";
  return {memory, memory && writes && (unary || form == "mem_imm"), form == "mem_imm"};
}

bool row_fuses(const arch::Microarch& microarch, std::string_view first, std::string_view form,
               unsigned condition) {
  const Operands o = operands_of(first, form);
  return microarch.fusion.fuses(kind_of(first), arch::condition_of_code(condition), o.reads_memory,
                                o.writes_memory, o.immediate);
}

std::string parameters(std::string_view first, std::string_view form, unsigned condition,
                       bool apart, std::string_view more = "") {
  return fmt::format("first={},form={},condition={},apart={:d},taken=any{}", first, form,
                     kConditions[condition], apart, more);
}

// Whether the kernel can send that jump anywhere after that first.
bool exists(std::string_view first, std::string_view form, unsigned condition) {
  const Kernel* kernel = *find_kernel("fused_branch");
  auto params = Params::parse(kernel->parameters, parameters(first, form, condition, false));
  return params && (kernel->check == nullptr || kernel->check(*params));
}

std::vector<Param> forms_of(std::initializer_list<const char*> firsts) {
  return over::product(over::words(firsts),
                       over::words({"reg_reg", "reg_imm", "mem_reg", "mem_imm"}));
}

}  // namespace

SKIDPROOF_SUITE(MacroFusion, kCount);

// Each side of a difference is a count with its own start and stop.
#define SKIDPROOF_EDGE (2 * margin_of(calibrated(calibrate::Quantity::kEdgeInstructions)))

// Uops that adjacency saves over so many iterations.
#define SKIDPROOF_SAVED(event, first, form, condition, more)                                      \
  difference(need(count(machine(), 0, event,                                                      \
                        program("fused_branch", parameters(first, form, condition, true, more)),  \
                        kIterations)),                                                            \
             need(count(machine(), 0, event,                                                      \
                        program("fused_branch", parameters(first, form, condition, false, more)), \
                        kIterations)))

// Every condition, every form: fused exactly where the generation's rules say so.
SKIDPROOF_TEST_OVER(MacroFusion, SavesAUopExactlyForThePairsOfTheGeneration,
                    forms_of({"cmp", "test", "and", "add", "sub", "inc", "dec"}), clause::R64,
                    clause::R65, clause::R66, clause::R67, clause::R68) {
  SKIDPROOF_REQUIRE_RULES();
  const arch::Event* event = counting_event(uarch(), Signal::kUops);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoUops);
  const std::string &first = param().word(0), &form = param().word(1);
  uint64_t fused = 0, tried = 0;
  for (unsigned condition = 0; condition < 16; ++condition) {
    if (!exists(first, form, condition)) continue;
    const bool fuses = row_fuses(uarch(), first, form, condition);
    VERIFY_THAT(SKIDPROOF_SAVED(*event, first, form, condition, ""),
                within(fuses ? kIterations : 0, SKIDPROOF_EDGE))
        << first << ' ' << form << ", j" << kConditions[condition];
    fused += fuses;
    ++tried;
  }
  SKIDPROOF_REQUIRE(tried > 0, SkipCategory::kNotOnThisMicroarch,
                    "the instruction has no such form");
  evidence("conditions", tried);
  evidence("fused", fused);
}

// Where no source gives rules: which conditions save a uop is reported.
SKIDPROOF_TEST_OVER(MacroFusion, IsReportedWhereNothingIsPublished,
                    forms_of({"cmp", "test", "and", "add", "inc", "or"}), clause::R64) {
  SKIDPROOF_REQUIRE(!uarch().fusion_published, SkipCategory::kNotOnThisMicroarch,
                    "its rules are published");
  const arch::Event* event = counting_event(uarch(), Signal::kUops);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoUops);
  const std::string &first = param().word(0), &form = param().word(1);
  std::vector<std::string> fused;
  uint64_t tried = 0;
  for (unsigned condition = 0; condition < 16; ++condition) {
    if (!exists(first, form, condition)) continue;
    ++tried;
    const int64_t saved = SKIDPROOF_SAVED(*event, first, form, condition, "");
    if (saved > int64_t{kIterations / 2}) fused.emplace_back(kConditions[condition]);
  }
  SKIDPROOF_REQUIRE(tried > 0, SkipCategory::kNotOnThisMicroarch,
                    "the instruction has no such form");
  observe("fuses-with", fused);
}

SKIDPROOF_TEST_OVER(MacroFusion, NeverTakesOtherFlagSetters,
                    forms_of({"or", "xor", "neg", "adc", "sbb", "shl"}), clause::R69, clause::R64) {
  SKIDPROOF_REQUIRE_RULES();
  const arch::Event* event = counting_event(uarch(), Signal::kUops);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoUops);
  const std::string &first = param().word(0), &form = param().word(1);
  uint64_t tried = 0;
  for (unsigned condition = 0; condition < 16; ++condition) {
    if (!exists(first, form, condition)) continue;
    VERIFY_THAT(SKIDPROOF_SAVED(*event, first, form, condition, ""), within(0, SKIDPROOF_EDGE))
        << first << ' ' << form << ", j" << kConditions[condition];
    ++tried;
  }
  SKIDPROOF_REQUIRE(tried > 0, SkipCategory::kNotOnThisMicroarch,
                    "the instruction has no such form");
  evidence("conditions", tried);
}

// On every generation: JO, JS, JP and their negations.
SKIDPROOF_TEST_OVER(MacroFusion, NeverTakesCmpBeforeOverflowSignOrParity,
                    over::words({"reg_reg", "reg_imm", "mem_reg", "mem_imm"}), clause::R69) {
  SKIDPROOF_REQUIRE_RULES();
  const arch::Event* event = counting_event(uarch(), Signal::kUops);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoUops);
  for (unsigned condition : {0, 1, 8, 9, 10, 11}) {
    if (!exists("cmp", param().word(), condition)) continue;
    VERIFY_THAT(SKIDPROOF_SAVED(*event, "cmp", param().word(), condition, ""),
                within(0, SKIDPROOF_EDGE))
        << "j" << kConditions[condition];
  }
}

// AND fuses as TEST does, ADD as SUB, INC as DEC: whatever a generation does with one of two.
SKIDPROOF_TEST_OVER(MacroFusion, TreatsRelatedFirstsAlike, over::words({"add+sub", "inc+dec"}),
                    clause::R67, clause::R68) {
  SKIDPROOF_REQUIRE_RULES();
  const arch::Event* event = counting_event(uarch(), Signal::kUops);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoUops);
  const std::string one = param().word().substr(0, 3), other = param().word().substr(4);
  for (unsigned condition = 0; condition < 16; ++condition) {
    if (!exists(one, "reg_reg", condition) || !exists(other, "reg_reg", condition)) continue;
    VERIFY_THAT(SKIDPROOF_SAVED(*event, one, "reg_reg", condition, ""),
                within(SKIDPROOF_SAVED(*event, other, "reg_reg", condition, ""), SKIDPROOF_EDGE))
        << "j" << kConditions[condition];
  }
}

// Where an event counts fused pairs, it counts as many as uops are saved.
SKIDPROOF_TEST_OVER(MacroFusion, IsCountedByItsOwnEvent,
                    over::words({"cmp", "test", "and", "sub", "inc", "or"}), clause::R71,
                    clause::R64) {
  const arch::Event* uops = counting_event(uarch(), Signal::kUops);
  unsigned counter = 0;
  const arch::Event* pairs = nullptr;
  for (unsigned n = 0; pairs == nullptr && n < reported_counters(machine()); ++n) {
    pairs = counting_event(uarch(), Signal::kMacroFused, n);
    counter = n;
  }
  SKIDPROOF_REQUIRE(uops != nullptr && pairs != nullptr, SkipCategory::kNotOnThisMicroarch,
                    "no event counts fused pairs");
  for (unsigned condition : {2, 4, 8, 12}) {
    if (!exists(param().word(), "reg_reg", condition)) continue;
    auto counted = [&](bool apart) {
      return need(
          count(machine(), counter, *pairs,
                program("fused_branch", parameters(param().word(), "reg_reg", condition, apart)),
                kIterations));
    };
    VERIFY_THAT(
        difference(counted(false), counted(true)),
        within(SKIDPROOF_SAVED(*uops, param().word(), "reg_reg", condition, ""), SKIDPROOF_EDGE))
        << "j" << kConditions[condition];
  }
}

// Nothing promises what a pair does whose first instruction ends a cache line: it fuses there as
// elsewhere, or never. The outcome is reported.
SKIDPROOF_TEST_OVER(MacroFusion, FusesAsElsewhereOrNotAtAllOverACacheLine,
                    over::words({"cmp", "test", "and", "add"}), clause::R70) {
  SKIDPROOF_REQUIRE_RULES();
  const arch::Event* event = counting_event(uarch(), Signal::kUops);
  SKIDPROOF_REQUIRE(event != nullptr, SkipCategory::kNotOnThisMicroarch, kNoUops);
  constexpr unsigned kEqual = 4;
  const std::string& first = param().word();
  const Program& code =
      program("fused_branch", parameters(first, "reg_reg", kEqual, false, ",line_end=1"));
  const Instruction* at = code.at(code.mark("first"));
  VERIFY_TRUE(at != nullptr && at->end() % 64 == 0) << "the pair lies over two lines";
  const int64_t inside = SKIDPROOF_SAVED(*event, first, "reg_reg", kEqual, "");
  const int64_t over = SKIDPROOF_SAVED(*event, first, "reg_reg", kEqual, ",line_end=1");
  observe("fuses-over-lines", over > int64_t{kIterations / 2});
  VERIFY_THAT(inside, within(row_fuses(uarch(), first, "reg_reg", kEqual) ? kIterations : 0,
                             SKIDPROOF_EDGE));
  VERIFY_THAT(over, ::testing::AnyOf(within(0, SKIDPROOF_EDGE), within(inside, SKIDPROOF_EDGE)));
}

}  // namespace skidproof::check::macro_fusion
