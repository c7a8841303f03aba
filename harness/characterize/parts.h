// The parts of the characterization: one file each, and a line in characterize.cc. An error ends the part only; those of
// single points are problems. What a part measures is said at its function.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_PARTS_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_PARTS_H_

#include "base/expected.h"
#include "harness/characterize/workbench.h"

namespace skidproof {

// clock.tsc, clock.core (GHz), clock.rdtsc, clock.rdtscp (cycles; one after another; the last where CPUID shows it). Behind several parts:
// clock.drift (% of its median by which the core's clock moved while measuring)
Expected<void> characterize_clock(Workbench& bench);
// memory.latency (ns and cycles; bytes, page)
Expected<void> characterize_latency(Workbench& bench);
// memory.stride_latency (ns and cycles; bytes, stride, order "forward", "backward", "random", page)
Expected<void> characterize_strides(Workbench& bench);
// cache.conflict (cycles; level, stride, lines), tlb.latency (cycles that translation adds; pages), tlb.walk (the same where
// both TLBs miss and page tables are in the core's caches), cache.last_level (cycles; bytes); shape.l1d.size,
// shape.l1d.ways, shape.line, shape.l2.size, shape.l2.ways, shape.l3.size, shape.dtlb.reach, shape.stlb.reach
Expected<void> characterize_caches(Workbench& bench);
// store.bandwidth, load.bandwidth, copy.bandwidth (GB/s, of windows up to 2 MiB B/cycle as well; bytes, kind, page)
Expected<void> characterize_bandwidth(Workbench& bench);
// store.forwarding (cycles a round trip, with a MOVQ where one of the two goes through a general register and the other
// through a vector register; store_bytes, load_bytes, offset of the load from the store, place "line", "across lines",
// address "two registers", "one register", verdict "forwarded", "blocked", "apart", "unclear"), store.alias_4k (cycles a
// load and the store before it; offset, chain "address", "data"), split.load, split.store (cycles an access; border "none", "line", "page", bytes)
Expected<void> characterize_forwarding(Workbench& bench);
// fusion.gain (cycles a pair; pair, first, condition, form, taken, spacing, nop_bytes, filler, slot_cycles, verdict "fused",
// "no gain", "unclear"), fusion.fused (bool, where the verdict is clear)
Expected<void> characterize_fusion(Workbench& bench);
// branch.taken (cycles a taken jump; branches, spacing), branch.btb (the same for many), shape.btb.reach (branches; level, of: levels that
// were found),
// branch.alignment (cycles a jump and the eight instructions before it; offset of the target in its line),
// branch.pattern (cycles; length), shape.pattern.length (directions),
// branch.indirect (cycles; targets), shape.indirect.targets (targets),
// branch.return_stack (cycles of one call more and its return, from random places; depth), shape.return_stack.depth (calls),
// branch.history (cycles that a jump which goes as one so many taken jumps before it costs more than one at random: below 0
// while that is remembered; length), shape.history.length (taken jumps)
Expected<void> characterize_branches(Workbench& bench);
// branch.mispredict_penalty (cycles and ns)
Expected<void> characterize_misprediction(Workbench& bench);
// instruction.latency, instruction.throughput (cycles; instruction; `company` where another thread slowed so many of the
// samples that none are left without); shape.move_elimination.mov, .movaps, shape.zeroing_idiom.xor, .pxor,
// shape.immediate_at_rename.add (bool)
Expected<void> characterize_instructions(Workbench& bench);
// window.time (cycles for two misses; filler, size); shape.rob.size, shape.int_registers.size,
// shape.vector_registers.size, shape.load_queue.size, shape.store_queue.size, shape.scheduler.size,
// shape.vector_scheduler.size, shape.vector256_registers.size (entries, of registers those beyond the architectural
// ones; filler)
Expected<void> characterize_windows(Workbench& bench);
// code.footprint (cycles an instruction; bytes, length of each); shape.code.reach (bytes of straight code that keep at least
// half of the rate: the instruction cache, or a cache of decoded instructions that is larger), shape.uop_cache.reach
// (instructions, where the rate falls in one step before that)
Expected<void> characterize_code(Workbench& bench);
// core.transfer (ns and cycles one way, the mean of both; from, to), scaling.load, scaling.store, scaling.copy (GB/s of all
// together; cpus, bytes of each, kind), memory.loaded_latency (ns; bytes, page, streams of the others, delay in each of them,
// bandwidth of all of them in GB/s)
Expected<void> characterize_cores(Workbench& bench);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_PARTS_H_
