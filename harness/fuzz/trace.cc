// Tracing on the interpreter, which executes here without core model and PMU.
#include "harness/fuzz/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "harness/fuzz/case.h"
#include "pebs/engines/guest_memory.h"
#include "pebs/engines/interpreter.h"

namespace skidproof::fuzz {
namespace {

using arch::Signal;
using engines::GuestMemory;
using engines::Interpreter;

constexpr uint64_t kArena = uint64_t{16} << 20;
constexpr size_t kCodeBytes = 64 << 10, kStackBytes = 16 << 10;
constexpr auto kRspIndex = static_cast<size_t>(arch::Gpr::kRsp);
constexpr auto kRsiIndex = static_cast<size_t>(arch::Gpr::kRsi);

// Whether the microarch fuses an instruction with the conditional jump behind it, by its own rules. The
// static list knows Sandy Bridge's, which no row exceeds.
bool fuses(const arch::Microarch& microarch, const Program& program, const Instruction& first) {
  const Instruction* jump = program.at(first.end());
  if (!first.fuses_with_next || jump == nullptr) return false;
  using arch::FusionFirst;
  constexpr std::pair<std::string_view, FusionFirst> kFirsts[] = {
      {"cmp", FusionFirst::kCmp}, {"test", FusionFirst::kTest}, {"and", FusionFirst::kAnd},
      {"add", FusionFirst::kAdd}, {"sub", FusionFirst::kSub},   {"inc", FusionFirst::kInc},
      {"dec", FusionFirst::kDec}};
  FusionFirst kind = FusionFirst::kNone;
  for (auto [mnemonic, of] : kFirsts) {
    if (first.text.starts_with(mnemonic)) kind = of;
  }
  // A jump's condition is the low nibble of its opcode: 7xH, or 0FH 8xH.
  const size_t offset = jump->address - program.code_address;
  auto opcode = static_cast<unsigned>(program.code[offset]);
  if (opcode == 0x0F) opcode = static_cast<unsigned>(program.code[offset + 1]);
  const size_t comma = first.text.rfind(", ");
  const bool immediate =
      comma != std::string::npos && (first.text[comma + 2] == '0' || first.text[comma + 2] == '-');
  return microarch.fusion.fuses(kind, arch::condition_of_code(opcode), first.loads, first.stores,
                                immediate && first.loads);
}

class InterpretedTracer final : public Tracer {
 public:
  InterpretedTracer(const arch::Microarch& microarch, std::unique_ptr<GuestMemory> memory,
                    Memory code, Memory data, Memory stack)
      : microarch_(microarch),
        memory_(std::move(memory)),
        code_(std::move(code)),
        data_(std::move(data)),
        stack_(std::move(stack)),
        core_(microarch),
        interpreter_(*memory_, core_, microarch, engines::Accounting::kBare) {}

  Expected<void> load(const Program& program, std::span<const std::byte> data) override;
  Expected<const Trace*> run(uint64_t iterations) override;

 private:
  void take_static(const Program& program);
  void note(const model::Retired& step, Retirement& into) const;
  DataAccess access(const model::Access& access) const;
  uint64_t stack_top() const { return stack_.address + stack_.host.size() / 2; }

  const arch::Microarch& microarch_;
  std::unique_ptr<GuestMemory> memory_;
  Memory code_, data_, stack_;
  model::Core core_;  // the interpreter wants one; it does not use it
  Interpreter interpreter_;
  Program program_;
  uint64_t code_delta_ = 0, data_delta_ = 0;  // the machine's addresses minus ours
  std::vector<uint32_t> at_offset_;           // offset in the code -> static instruction
  Trace trace_;
};

void InterpretedTracer::take_static(const Program& program) {
  trace_.code.clear();
  at_offset_.assign(program.code.size() + 1, 0);
  for (const Instruction& i : program.instructions) {
    at_offset_[i.address - program.code_address] = static_cast<uint32_t>(trace_.code.size());
    trace_.code.push_back({.address = i.address,
                           .length = i.length,
                           .flow = i.flow,
                           .loads = i.loads,
                           .stores = i.stores,
                           .locked = i.text.starts_with("lock"),
                           .nop = i.text.starts_with("nop"),
                           .fuses = fuses(microarch_, program, i)});
  }
}

Expected<void> InterpretedTracer::load(const Program& program, std::span<const std::byte> data) {
  if (program.code.size() > code_.host.size() || data.size() > data_.host.size()) {
    return fail(ErrorCode::kInvalidArgument, "the program is too large to be traced");
  }
  take_static(program);
  code_delta_ = program.code_address - code_.address;
  data_delta_ = program.data_address - data_.address;
  program_.code = program.code;
  program_.code_address = code_.address;
  program_.entry = program.entry - code_delta_;
  std::copy(data.begin(), data.end(), data_.host.begin());
  return interpreter_.load(program_);
}

DataAccess InterpretedTracer::access(const model::Access& access) const {
  DataAccess out;
  out.valid = access.valid;
  if (!access.valid) return out;
  out.stack = access.address - stack_.address < stack_.host.size();
  out.address = out.stack ? access.address - (stack_top() - 8) : access.address + data_delta_;
  return out;
}

void InterpretedTracer::note(const model::Retired& step, Retirement& into) const {
  into.instruction = at_offset_[step.ip - code_.address];
  into.taken = step.after->ip != step.ip + step.length;
  into.next_ip = step.after->ip == Interpreter::kSentinel ? 0 : step.after->ip + code_delta_;
  into.gpr = step.after->gpr;
  into.gpr[kRsiIndex] += data_delta_;
  into.gpr[kRspIndex] -= stack_top() - 8;
  into.flags = step.after->flags;
  into.load = access(step.load);
  into.store = access(step.store);
}

Expected<const Trace*> InterpretedTracer::run(uint64_t iterations) {
  interpreter_.call(program_.entry, iterations, data_.address, stack_top());
  trace_.retired.clear();
  model::Retired step;
  while (!interpreter_.finished()) {
    if (trace_.retired.size() >= kMaximumTrace) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("a run retires more than {} instructions", kMaximumTrace),
                  "use fewer iterations or shorter delays");
    }
    SKIDPROOF_CHECK(interpreter_.step(step));
    note(step, trace_.retired.emplace_back());
  }
  return &trace_;
}

}  // namespace

std::optional<unsigned> events_of(Signal signal, const StaticInstruction& i, bool taken) {
  const bool conditional = i.flow == Flow::kConditional;
  switch (signal) {
    case Signal::kInstructions:
      return 1;
    case Signal::kNops:
      return i.nop;
    case Signal::kMacroFused:
      return i.fuses;
    case Signal::kBranches:
      return i.flow != Flow::kNone;
    case Signal::kConditional:
      return conditional;
    case Signal::kConditionalTaken:
      return conditional && taken;
    case Signal::kConditionalNotTaken:
      return conditional && !taken;
    case Signal::kNearCalls:
      return i.flow == Flow::kCall;
    case Signal::kNearReturns:
      return i.flow == Flow::kReturn;
    case Signal::kNearTaken:
      return i.flow != Flow::kNone && (!conditional || taken);
    case Signal::kLoads:
      return i.loads;
    case Signal::kStores:
      return i.stores;
    case Signal::kLockedLoads:
      return i.locked && i.loads;
    default:
      return std::nullopt;
  }
}

bool architectural(Signal signal) { return events_of(signal, {}, false).has_value(); }

Expected<std::unique_ptr<Tracer>> Tracer::create(const arch::Microarch& microarch) {
  auto memory = SKIDPROOF_TRY(GuestMemory::create(GuestMemory::kBase, kArena));
  Memory code = SKIDPROOF_TRY(memory->allocate(kCodeBytes, MemoryUse::kCode, false));
  Memory data = SKIDPROOF_TRY(memory->allocate(kSequenceDataBytes, MemoryUse::kData, false));
  Memory stack = SKIDPROOF_TRY(memory->allocate(kStackBytes, MemoryUse::kData, false));
  return std::make_unique<InterpretedTracer>(microarch, std::move(memory), std::move(code),
                                             std::move(data), std::move(stack));
}

}  // namespace skidproof::fuzz
