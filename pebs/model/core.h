// The core model behind the events: caches, TLBs, fill buffers, branch predictor and the retirement clock.
//
// The clock counts retirement slots: an instruction takes its fused-domain uops, one slot each, plus
// stalls of whole or part cycles (retire_width slots each). Everything is a function of the sequence of
// instructions and addresses, so a run is the same on every host and however it was cut into pieces.
//
// Choices of the model, asserted nowhere on silicon (sizes and latencies are arch::CacheGeometry, and a
// rough machine has others):
//  - a load beyond L1 stalls for its full latency when it is a pointer chase, for a quarter of it when
//    not (independent misses overlap);
//  - a store never waits for its line, only for a free fill buffer when all ten are in use; a
//    non-temporal store uses a fill buffer for half the memory latency, once per line;
//  - a line is "on its way" (kLoadsFillBuffer) until its latency has passed on the clock;
//  - address translation costs stlb_latency on a DTLB miss and walk_latency more on an STLB miss,
//    overlapped like the access itself; pages are 4 KiB whatever the backing;
//  - there is no hardware prefetcher unless CoreBehaviour says so, no store-to-load forwarding and no
//    instruction cache;
//  - caches are neither inclusive nor exclusive: a miss fills every level;
//  - reference cycles and the TSC run at CoreBehaviour::reference_percent of the core clock, and the bus
//    at a whole fraction of that;
//  - the last level's references and misses are those of loads and of stores that are not
//    non-temporal, each line by itself.
#ifndef SKIDPROOF_PEBS_MODEL_CORE_H_
#define SKIDPROOF_PEBS_MODEL_CORE_H_

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "pebs/arch/microarch.h"
#include "pebs/arch/signal.h"
#include "pebs/model/cache.h"
#include "pebs/model/core_behaviour.h"
#include "pebs/model/predictor.h"
#include "pebs/model/retired.h"

namespace skidproof::model {

class Core {
 public:
  // `seed` chooses what an idle predictor happens to hold; everything else starts empty.
  Core(const arch::CacheGeometry& geometry, uint64_t seed, const CoreBehaviour& behaviour = {});
  Core(const CoreBehaviour& behaviour, uint64_t seed) : Core(behaviour.caches, seed, behaviour) {}
  explicit Core(const arch::Microarch& microarch, uint64_t seed = 0)
      : Core(core_behaviour_of(microarch), seed) {}

  // Everything counted since construction or reset(); exact whenever an engine has returned.
  const arch::SignalCounts& totals() const { return totals_; }
  // The core clock in cycles, and the TSC.
  uint64_t cycle() const { return cycles_; }
  uint64_t tsc() const { return reference_cycles_; }
  // The TSC at a reading of the core clock.
  uint64_t reference(uint64_t cycle) const { return cycle * reference_percent_ / 100; }
  // Time passes in which nothing retires: the totals gain cycles and reference cycles.
  void stall(uint64_t cycles) {
    if (cycles != 0) stand_still(cycles);
  }
  // Back to the state after construction.
  void reset();

  // ---- For engines. `now` and clocks are in retirement slots.

  uint64_t clock() const { return clock_; }
  uint32_t width() const { return width_; }

  // True when an access costs nothing and changes no state: it lies in the most recent line of its L1
  // set and the most recent page of its DTLB set, within one line. An engine may then skip load() or
  // store(). Pages that were entered as `checked` never answer true.
  bool load_is_quick(uint64_t address, unsigned bytes) const {
    return translated(address) && within_line(address, bytes) &&
           l1_.most_recent(line(address)) == line(address);
  }
  bool store_is_quick(uint64_t address, unsigned bytes) const {
    return translated(address) && within_line(address, bytes) &&
           (l1_.most_recent(line(address)) & Tag::kNumber) == line(address);
  }
  bool stream_is_quick(uint64_t address, unsigned bytes) const {
    return translated(address) && within_line(address, bytes) && line(address) == stream_line_;
  }

  // Any access that is not quick. Returns the stall in slots, at most kMaximumAccessStall cycles of them.
  // `checked`: the engine wants to see every access to this page (it may not be written).
  uint64_t load(uint64_t address, unsigned bytes, uint64_t now, bool pointer_chase, bool checked);
  uint64_t store(uint64_t address, unsigned bytes, uint64_t now, bool checked);
  uint64_t store_stream(uint64_t address, unsigned bytes, uint64_t now, bool checked);
  // CLFLUSH: no level has the line any more. It takes no time.
  void flush(uint64_t address);

  // Branches: each returns the stall in slots.
  uint64_t conditional(uint32_t key, bool taken) {
    bool wrong = predictor_.conditional(key, taken);
    dynamic_[kTaken] += taken;
    if (wrong) [[unlikely]] {
      ++dynamic_[taken ? kWrongTaken : kWrongNotTaken];
      return penalty_;
    }
    return 0;
  }
  void call(uint64_t return_address) { predictor_.call(return_address); }
  uint64_t call_indirect(uint32_t key, uint64_t target, uint64_t return_address) {
    predictor_.call(return_address);
    return predictor_.indirect(key, target) ? wrong(kWrongCall) : 0;
  }
  uint64_t jump_indirect(uint32_t key, uint64_t target) {
    return predictor_.indirect(key, target) ? wrong(kWrongOther) : 0;
  }
  uint64_t give_back(uint64_t target) {
    return predictor_.give_back(target) ? wrong(kWrongOther) : 0;
  }

  // Closes a stretch of execution that began at clock(): completes its static `counts`, the rest of which is zero, with
  // time and everything dynamic, adds them to the totals, and sets the clock.
  void settle(arch::SignalCounts& counts, uint64_t clock);

  // Pages were mapped or unmapped: both TLBs are emptied.
  void forget_translations();

  // What the last access of each kind met, for engines that execute one instruction at a time: set
  // both to "quick" before it, and read them afterwards.
  struct Probe {
    Access load, store;
  };
  void arm_probe(uint64_t store_address);
  const Probe& probe() const { return probe_; }

  static constexpr unsigned kMaximumAccessStall = 400;  // cycles
  static constexpr unsigned kFillBuffers = 10;

 private:
  // Data source encodings [SDM Table 18-24].
  enum Source : uint8_t { kL1 = 1, kFillBuffer = 2, kL2 = 3, kL3 = 4, kLocalDramExclusive = 0xC };
  enum Dynamic : uint8_t {
    kTaken,
    kWrongTaken,
    kWrongNotTaken,
    kWrongCall,
    kWrongOther,
    kFromFillBuffer,
    kFromL2,
    kFromL3,
    kFromMemory,
    kLlcReference,
    kLlcMiss,
    kSplitLoad,
    kSplitStore,
    kWalkLoad,
    kWalkStore,
    kDynamics,
  };
  // Small enough to come back in registers.
  struct Line {
    uint32_t source = kL1;
    uint32_t latency = 0;  // cycles
    uint64_t wait = 0;     // slots until a fill buffer was free
  };
  struct Level {
    uint32_t source;
    uint32_t latency;  // cycles
  };
  struct Translation {
    uint32_t latency = 0;  // cycles
    uint32_t walked = 0;
  };

  static uint32_t line(uint64_t address) {
    return static_cast<uint32_t>(address >> kLineShift) & Tag::kNumber;
  }
  static uint32_t page(uint64_t address) {
    return static_cast<uint32_t>(address >> kPageShift) & Tag::kNumber;
  }
  static bool within_line(uint64_t address, unsigned bytes) {
    return (address & (kLineBytes - 1)) <= kLineBytes - bytes;
  }
  // Compares whole page numbers: 31-bit tags alone would let a wild address alias a known page.
  bool translated(uint64_t address) const {
    uint64_t full = address >> kPageShift;
    return recent_page_[full & recent_mask_] == full;
  }

  Line reach(uint32_t number, uint64_t now);
  Line reach_unusual(uint32_t number, uint64_t now);
  void stand_still(uint64_t cycles);
  void spend(uint64_t clock, arch::SignalCounts& counts);
  void total(const arch::SignalCounts& counts);
  bool has_dynamic() const;
  void count_dynamic(arch::SignalCounts& counts);
  Line fetch(uint32_t number, uint64_t now);
  void prefetch_behind(uint32_t number);
  Level look_far(uint32_t number);
  Line pending(uint32_t number, uint64_t now) const;
  uint64_t take_buffer(uint32_t number, uint64_t now, uint64_t busy);
  Translation translate(uint64_t address, bool anew);
  Translation translate_both(uint64_t address, uint64_t last, bool checked);
  std::pair<Line, Translation> reach_both(uint64_t address, unsigned bytes, uint64_t now,
                                          bool checked);
  Translation look_up(uint32_t number);
  Translation walk(uint32_t number);
  template <bool kWatched>
  uint64_t load_whole(uint64_t address, unsigned bytes, uint64_t now, bool pointer_chase,
                      bool checked);
  template <bool kWatched>
  uint64_t store_whole(uint64_t address, unsigned bytes, uint64_t now, bool checked);
  // Watched, or of two lines.
  uint64_t load_rare(uint64_t address, unsigned bytes, uint64_t now, bool pointer_chase,
                     bool checked);
  uint64_t store_rare(uint64_t address, unsigned bytes, uint64_t now, bool checked);
  bool looks_up_anew(bool checked) const { return checked || (watching_ & kDeviation) != 0; }
  void count(uint32_t source, uint64_t times);
  uint64_t stall_of(Line found, uint32_t translation, bool pointer_chase) const;
  void note(Access& access, Line found, Translation translation) const;
  uint64_t deviating_stall(uint64_t address, unsigned bytes, Line found, uint32_t translation,
                           bool pointer_chase);
  uint64_t wrong(Dynamic which) {
    ++dynamic_[which];
    return penalty_;
  }
  uint64_t bounded(uint64_t slots) const { return slots < stall_bound_ ? slots : stall_bound_; }

  static constexpr unsigned kLineShift = 6, kPageShift = 12;
  static constexpr unsigned kLineBytes = 1u << kLineShift;
  static constexpr uint32_t kNoLine = Tag::kEmpty;

  static constexpr uint64_t kNoPage = UINT64_MAX;

  TagArray<8, true> l1_;
  TagArray<4> dtlb_;
  std::vector<uint64_t>
      recent_page_;  // of each DTLB set the most recent, unless it is to be checked
  uint64_t recent_mask_;
  uint32_t stream_line_ = kNoLine;                 // the line that non-temporal stores combine in
  uint64_t penalty_;                               // of a misprediction, in slots
  std::array<uint64_t, kDynamics + 1> dynamic_{};  // the last is what nobody counts
  Predictor predictor_;

  TagArray<8> l2_;
  TagArray<16> l3_;
  TagArray<4> stlb_;
  arch::CacheGeometry geometry_;
  uint32_t l1_latency_;  // never more than the levels behind it
  uint32_t width_;
  std::array<uint32_t, 2> near_latency_;      // cycles: of L3, of L2
  std::array<uint32_t, 2> near_translation_;  // cycles: a hit of the STLB, of the DTLB
  uint64_t stall_bound_;
  uint64_t seed_;
  uint32_t reference_percent_;
  uint64_t prefetch_;  // of 2^32 misses, how many the next line comes behind
  uint64_t clock_ = 0;
  uint64_t cycles_ = 0;            // clock_ in cycles
  uint64_t reference_cycles_ = 0;  // in those of the TSC
  uint64_t bus_cycles_ = 0;        // and in those of the bus
  std::array<uint32_t, kFillBuffers> pending_line_{};
  std::array<uint64_t, kFillBuffers> pending_until_{};
  unsigned next_buffer_ = 0;
  // What accesses are watched for, bit by bit; a conforming core watches for a probe alone.
  enum Watch : uint8_t { kProbe = 1, kDeviation = 2 };
  uint8_t watching_ = 0;
  Probe probe_;
  CoreBehaviour deviation_;  // where kDeviation is set
  struct {
    uint64_t address = 0;
    unsigned bytes = 0;  // 0: no store since the last load
  } last_store_;
  arch::SignalCounts totals_{};
};

}  // namespace skidproof::model

#endif  // SKIDPROOF_PEBS_MODEL_CORE_H_
