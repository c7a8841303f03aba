#include "suites/sampling.h"

#include <algorithm>
#include <cmath>

namespace skidproof::suites {

const arch::Event* precise_event(const arch::Microarch& microarch, arch::Signal signal,
                                 unsigned counter) {
  for (const arch::Event& e : microarch.events) {
    bool plain = e.cmask == 0 && !e.invert;
    bool ordinary = e.kind == arch::EventKind::kPebs || e.kind == arch::EventKind::kPebsOnly;
    if (e.signal == signal && plain && ordinary && ((e.pebs_counters >> counter) & 1) != 0)
      return &e;
  }
  return nullptr;
}

const arch::Event* facility_event(const arch::Microarch& microarch, arch::EventKind kind) {
  for (const arch::Event& e : microarch.events) {
    if (e.kind == kind) return &e;
  }
  return nullptr;
}

SessionPlan one_counter(const CounterSetup& setup, size_t records) {
  SessionPlan plan;
  plan.counters = {setup};
  plan.buffer_records = records;
  return plan;
}

uint64_t passing_events(const calibrate::Figure& arming, uint64_t events, uint64_t instructions,
                        double a_cycle) {
  if (!arming.known()) return 0;
  const double passing = arming.value * a_cycle;
  return static_cast<uint64_t>(
      std::ceil(passing * static_cast<double>(events) / static_cast<double>(instructions)));
}

uint64_t loads_for(size_t records, uint64_t period, const calibrate::Figure& tagging) {
  constexpr double kLeast = 8;
  const double loads = std::max(tagging.known() ? 2 * tagging.value : kLeast, kLeast);
  return static_cast<uint64_t>(static_cast<double>(iterations_for(records, period)) * loads);
}

Expected<Sampled> sample(Machine& machine, const SessionPlan& plan, const Program& program,
                         uint64_t iterations) {
  Session session = SKIDPROOF_TRY(Session::open(machine, plan));
  SessionRun run = SKIDPROOF_TRY(session.run(program, iterations));
  return Sampled{std::move(session), std::move(run)};
}

Expected<Sampled> sample_until_full(Machine& machine, const SessionPlan& plan,
                                    const Program& program, size_t wanted, uint64_t& iterations,
                                    uint64_t most) {
  for (;;) {
    Sampled sampled = SKIDPROOF_TRY(sample(machine, plan, program, iterations));
    const uint64_t records = sampled.records().size();
    if (records >= wanted || iterations >= most) return sampled;
    // At most eightfold: what recorded next to nothing says little about how much more it needs.
    const uint64_t needed = iterations * wanted / std::max<uint64_t>(records, 1);
    iterations = std::min(most, std::min(needed * 9 / 8, iterations * 8) + 1);
  }
}

std::optional<uint64_t> recorded_counters(const arch::Microarch& microarch, const Record& record) {
  if (record.has(&arch::RecordLayout::applicable_counters)) return record.applicable_counters();
  if (!record.has(&arch::RecordLayout::global_status)) return std::nullopt;
  return record.global_status() & microarch.pebs_counters;
}

Expected<void> LostReloads::mend(Machine& machine, uint64_t counter, uint64_t index,
                                 uint64_t load) {
  constexpr unsigned kPatience = 3;
  const bool passed_zero = (counter >> (width_ - 1) & 1) == 0;
  silent_ = passed_zero && index == index_ ? silent_ + 1 : 0;
  index_ = index;
  if (silent_ < kPatience) return {};
  silent_ = 0;
  return machine.wrmsr(msr_, load);
}

std::optional<size_t> instruction_index(const Program& program, uint64_t ip) {
  const Instruction* at = program.at(ip);
  if (at == nullptr) return std::nullopt;
  return static_cast<size_t>(at - program.instructions.data());
}

namespace {

uint64_t next_on_path(const Instruction& at, const InstructionTest& taken,
                      std::vector<uint64_t>& returns) {
  switch (at.flow) {
    case Flow::kNone:
      return at.end();
    case Flow::kConditional:
      return taken(at) ? at.target : at.end();
    case Flow::kJump:
      return at.target;
    case Flow::kCall:
      returns.push_back(at.end());
      return at.target;
    case Flow::kReturn:
      break;
  }
  if (returns.empty()) return 0;
  uint64_t back = returns.back();
  returns.pop_back();
  return back;
}

}  // namespace

LoopPath LoopPath::of(const Program& program, const InstructionTest& taken) {
  LoopPath path;
  std::vector<uint64_t> returns;
  uint64_t first = program.mark("loop.first");
  for (uint64_t ip = first; path.steps_.size() <= program.instructions.size();) {
    const Instruction* at = program.at(ip);
    if (at == nullptr) break;
    path.position_.emplace(ip, path.steps_.size());
    path.steps_.push_back(at);
    ip = next_on_path(*at, taken, returns);
    if (ip == first) return path;
  }
  return {};
}

std::optional<size_t> LoopPath::position(uint64_t ip) const {
  auto it = position_.find(ip);
  if (it == position_.end()) return std::nullopt;
  return it->second;
}

std::optional<size_t> LoopPath::skid(uint64_t ip, const InstructionTest& causes) const {
  std::optional<size_t> at = position(ip);
  for (size_t distance = 1; at && distance <= size(); ++distance) {
    if (causes(before(*at, distance))) return distance;
  }
  return std::nullopt;
}

InstructionTest causes(arch::Signal signal, const InstructionTest& taken) {
  return [signal, taken](const Instruction& i) {
    switch (signal) {
      case arch::Signal::kLoads:
        return i.loads;
      case arch::Signal::kStores:
        return i.stores;
      case arch::Signal::kBranches:
        return i.flow != Flow::kNone;
      case arch::Signal::kConditional:
        return i.flow == Flow::kConditional;
      case arch::Signal::kNearCalls:
        return i.flow == Flow::kCall;
      case arch::Signal::kNearReturns:
        return i.flow == Flow::kReturn;
      case arch::Signal::kNearTaken:
        return i.flow != Flow::kNone && (i.flow != Flow::kConditional || taken(i));
      case arch::Signal::kSimd:
        return i.text.find("xmm") != std::string::npos;
      case arch::Signal::kUops:
      case arch::Signal::kInstructions:
        return true;
      default:
        return false;
    }
  };
}

uint64_t events_of(const LoopPath& path, arch::Signal signal, const InstructionTest& taken) {
  const InstructionTest causing = causes(signal, taken);
  const bool uops = signal == arch::Signal::kUops;
  const size_t events = path.count(
      [&](const Instruction& i) { return causing(i) && !(uops && i.flow == Flow::kConditional); });
  return std::max<uint64_t>(events, 1);
}

bool first_of_fused_pair(const arch::Microarch& microarch, const Program& program,
                         const Instruction& first) {
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
  size_t offset = jump->address - program.code_address;
  auto opcode = static_cast<unsigned>(program.code.at(offset));
  if (opcode == 0x0F) opcode = static_cast<unsigned>(program.code.at(offset + 1));
  size_t comma = first.text.rfind(", ");
  bool immediate =
      comma != std::string::npos && (first.text[comma + 2] == '0' || first.text[comma + 2] == '-');
  const arch::FusionRules& rules =
      microarch.fusion_published ? microarch.fusion : arch::kSandyBridgeFusion;
  return rules.fuses(kind, arch::condition_of_code(opcode), first.loads, first.stores, immediate);
}

Placing& Placing::operator+=(const Placing& other) {
  for (auto [distance, count] : other.skid) skid[distance] += count;
  for (auto [ip, count] : other.hits) hits[ip] += count;
  on_path += other.on_path;
  off_path += other.off_path;
  foreign += other.foreign;
  at_exit += other.at_exit;
  runs += other.runs;
  return *this;
}

Placing place(const Program& program, const LoopPath& path, const Records& records,
              const InstructionTest& causes) {
  Placing placing;
  placing.runs = 1;
  const Instruction* jump = program.at(program.mark("loop.jnz"));
  for (Record record : records) {
    std::optional<size_t> skid = path.skid(record.ip(), causes);
    if (skid) {
      ++placing.on_path;
      ++placing.hits[record.ip()];
      ++placing.skid[static_cast<int64_t>(*skid)];
    } else if (foreign(program, record.ip())) {
      ++placing.foreign;
    } else if (jump != nullptr && record.ip() == jump->end()) {
      ++placing.at_exit;
    } else {
      ++placing.off_path;
    }
  }
  return placing;
}

}  // namespace skidproof::suites
