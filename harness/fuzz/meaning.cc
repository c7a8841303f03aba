#include "harness/fuzz/meaning.h"

#include "harness/fuzz/trace.h"
#include "pebs/arch/msr.h"

namespace skidproof::fuzz {

using namespace arch;

namespace {

bool has(uint64_t value, unsigned n) { return ((value >> n) & 1) != 0; }

// Where a PEBS counter's event and facility are published. [Tables 18-31, 18-32; R33, P1, P4 to P10]
Pebs pebs_of(const Microarch& m, unsigned n, uint64_t select, uint64_t enable, const Event* event) {
  if (!has(m.pebs_counters, n) || !has(enable, n)) return Pebs::kNever;
  const unsigned combination =
      qualifiers((select & evtsel::kAnyThread) != 0, (select & evtsel::kEdge) != 0,
                 (select & evtsel::kInvert) != 0, (select & evtsel::kCmask) != 0);
  if (combination != 0) {
    return m.expectation(combination) == Expectation::kMustHold ? Pebs::kNever : Pebs::kNoPromise;
  }
  if (event == nullptr || !event->precise()) return Pebs::kNoPromise;  // P4
  switch (event->kind) {
    case EventKind::kPreciseStore:
      if (!has(m.precise_store_counter, n)) return Pebs::kNever;            // P7
      if ((enable & pebs_enable::kPreciseStore) == 0) return Pebs::kNever;  // P8
      return Pebs::kOrdinary;
    case EventKind::kLoadLatency:
      if (m.load_latency_enable != 0 && !has(enable, pebs_enable::kLoadLatencyShift + n)) {
        return Pebs::kNever;  // P10
      }
      return Pebs::kNoPromise;  // which loads are tagged is chance
    case EventKind::kStoreSample:
    case EventKind::kFrontend:
      return Pebs::kNoPromise;
    case EventKind::kPdir:
      // With periods that are rounded it is not that precise (R41).
      if (m.pdir_period_multiple > 1) return Pebs::kNoPromise;
      if (has(m.pdir_counter, n)) return Pebs::kPdir;
      break;
    default:
      break;
  }
  if (!has(event->pebs_counters, n)) return Pebs::kNoPromise;
  return has(m.pdist_counters, n) && m.distributes(*event) ? Pebs::kPdir : Pebs::kOrdinary;  // R62
}

}  // namespace

Meaning meaning_of(const RegisterFile& registers, unsigned n, uint64_t global_ctrl, bool user) {
  const Microarch& m = registers.microarch();
  const uint64_t select = registers.at(IA32_PERFEVTSEL0 + n);
  const uint64_t enable = registers.at(IA32_PEBS_ENABLE);
  const Event* event = m.event(static_cast<uint8_t>(select), static_cast<uint8_t>(select >> 8),
                               static_cast<uint8_t>(select >> evtsel::kUmask2Shift));
  Meaning meaning;
  meaning.interrupts = (select & evtsel::kInt) != 0;
  meaning.qualified = (select & evtsel::kPebsQualifiers) != 0;
  meaning.counts = has(global_ctrl, n) && (select & evtsel::kEnable) != 0 &&
                   (select & (user ? evtsel::kUsr : evtsel::kOs)) != 0;
  meaning.pebs = pebs_of(m, n, select, enable, event);
  if (event == nullptr) return meaning;
  meaning.precise_store = event->kind == EventKind::kPreciseStore;
  meaning.load_latency = event->kind == EventKind::kLoadLatency;
  meaning.alone = event->taken_alone;
  // With CMASK or Edge cycles are counted, with AnyThread somebody else's events too (M28, M29, M36);
  // INV has no meaning while CMASK is 0.
  // Neither are events inside transactions alone predicted.
  constexpr uint64_t kTransactions = evtsel::kInTx | evtsel::kInTxCp;
  const bool plain =
      (select & (evtsel::kCmask | evtsel::kEdge | evtsel::kAnyThread | kTransactions)) == 0;
  meaning.published = has(event->counters, n);
  const bool chance = meaning.load_latency || event->kind == EventKind::kStoreSample ||
                      event->kind == EventKind::kFrontend;
  if (plain && meaning.published && !chance && architectural(event->signal)) {
    meaning.signal = event->signal;
  }
  return meaning;
}

Meaning fixed_meaning_of(const RegisterFile& registers, unsigned i, uint64_t global_ctrl,
                         bool user) {
  const uint64_t field = registers.at(IA32_FIXED_CTR_CTRL) >> (4 * i) & 0xF;
  Meaning meaning;
  meaning.counts = has(global_ctrl, status::kFixedShift + i) &&
                   (field & (user ? fixed_ctrl::kUsr : fixed_ctrl::kOs)) != 0;
  meaning.interrupts = (field & fixed_ctrl::kPmi) != 0;
  // Fixed counter 0 counts instructions (M18); the others count time.
  if (i == 0 && (field & fixed_ctrl::kAnyThread) == 0) meaning.signal = Signal::kInstructions;
  // PEBS of a fixed counter is not predicted.
  const bool enabled = has(registers.at(IA32_PEBS_ENABLE), pebs_enable::kFixedShift + i);
  if (has(registers.microarch().pebs_fixed_counters, i) && enabled) {
    meaning.pebs = Pebs::kNoPromise;
    meaning.signal.reset();
  }
  return meaning;
}

}  // namespace skidproof::fuzz
