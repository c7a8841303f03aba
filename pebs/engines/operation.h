// How the interpreter stores and executes decoded code: operations, basic blocks, and the state that
// handlers pass along. Private to the interpreter's own files.
#ifndef SKIDPROOF_PEBS_ENGINES_OPERATION_H_
#define SKIDPROOF_PEBS_ENGINES_OPERATION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "pebs/arch/signal.h"
#include "pebs/engines/flags.h"
#include "pebs/engines/guest_memory.h"
#include "pebs/model/core.h"
#include "pebs/model/decode.h"
#include "pebs/model/retired.h"

namespace skidproof::engines {

struct State;
struct Operation;
struct Block;

// Executes one operation and goes on to the next by a tail call, so that the clock (in retirement slots,
// without the static slots of the current block) and the instructions left in the budget stay in
// machine registers.
using Handler = void (*)(State&, const Operation*, uint64_t clock, uint64_t remaining);

// One decoded instruction, or a pair of them. Registers are byte offsets into State, so that AH is RAX's
// offset plus one and a missing base or index is State::zero.
struct Operation {
  union {
    Handler handler = nullptr;
    Block* block;  // in the place after a block's last operation: the block that it ends
  };
  uint16_t destination = 0, source = 0, base = 0, index = 0;
  uint8_t scale = 0;
  uint8_t detail = 0;    // condition, or whether the condition is inverted
  uint8_t chase = 0;     // a load whose address depends on its own last result
  uint8_t position = 0;  // of the (first) instruction in its block
  uint32_t slots =
      0;  // static slots and stalls of the block before it; after the last: predictor key
  int64_t displacement = 0;
  uint64_t immediate = 0;
};

// A run of instructions that is entered at the top and left at the bottom.
struct Block {
  uint64_t executions = 0;  // since the last settlement
  Block* next_touched = nullptr;
  uint64_t instructions = 0;  // UINT64_MAX for the block that stands for "returned to the sentinel"
  uint64_t slots = 0;         // static
  const Operation* entry = nullptr;
  Block* successor[2] = {};  // [taken]; null until it was first needed
  uint64_t successor_ip[2] = {};

  uint64_t ip = 0, end = 0;       // code bytes
  std::vector<Operation> whole;   // fused, dead flags left out: executed all or nothing
  std::vector<Operation> single;  // two per instruction: it, and one that stops
  std::vector<model::InstructionFacts> facts;
  std::vector<std::pair<arch::Signal, uint32_t>> counts;  // static
};

enum class Fault : uint8_t { kNone, kLoad, kStore, kDivide, kAlignment, kUnknown };

// Everything a handler touches. Registers come first: short displacements.
struct State {
  model::Registers registers;
  uint64_t zero = 0;  // what a missing base or index reads
  uint64_t host_delta = 0;
  uint64_t address_mask = ~uint64_t{0};  // what the mode leaves of an address
  model::Core* core = nullptr;
  GuestMemory* memory = nullptr;
  LazyFlags flags;
  Block* touched = nullptr;  // a list of those with executions > 0

  // Recently used targets of returns and indirect jumps. An address that stands in another's place is of nobody.
  static constexpr unsigned kTargets = 256;
  struct Target {
    uint64_t ip = 0;
    Block* block = nullptr;
  };
  static unsigned slot_of(uint64_t ip) { return static_cast<unsigned>((ip ^ ip >> 8) % kTargets); }
  static std::array<Target, kTargets> nobody() {
    std::array<Target, kTargets> all;
    all[slot_of(0)].ip = 1;
    return all;
  }
  std::array<Target, kTargets> targets = nobody();

  // How execution left the handlers.
  uint64_t clock = 0, remaining = 0;
  Block* next = nullptr;  // where it goes on; null: look up next_ip
  uint64_t next_ip = 0;
  Block** link = nullptr;  // to be filled with what next_ip turns out to be
  Fault fault = Fault::kNone;
  const Operation* fault_at = nullptr;
  uint64_t fault_address = 0;

  // Repetitions that a broken CPU counts as instructions of their own.
  uint64_t extra_instructions = 0;

  alignas(32) std::array<std::array<uint64_t, 4>, 16> vectors{};

  template <typename T>
  T read(uint16_t offset) const {
    T value;
    std::memcpy(&value, reinterpret_cast<const std::byte*>(this) + offset, sizeof(T));
    return value;
  }
  // A 32-bit result clears the upper half; smaller ones keep the rest. [SDM vol. 1, 3.4.1.1]
  template <typename T>
  void write(uint16_t offset, T value) {
    if constexpr (sizeof(T) == 4) {
      uint64_t wide = value;
      std::memcpy(reinterpret_cast<std::byte*>(this) + offset, &wide, sizeof(wide));
    } else {
      std::memcpy(reinterpret_cast<std::byte*>(this) + offset, &value, sizeof(T));
    }
  }
  // In 32-bit mode a sum beyond 4 GiB is not an address yet: nothing stands there, so that it is
  // never quick, and Modelled and Bare take address_mask to what is not mapped.
  uint64_t effective(const Operation* op) const {
    return read<uint64_t>(op->base) + (read<uint64_t>(op->index) << op->scale) +
           static_cast<uint64_t>(op->displacement);
  }
  template <typename T>
  T load(uint64_t address) const {
    T value;
    std::memcpy(&value, reinterpret_cast<const void*>(address + host_delta), sizeof(T));
    return value;
  }
  template <typename T>
  void store(uint64_t address, T value) {
    std::memcpy(reinterpret_cast<void*>(address + host_delta), &value, sizeof(T));
  }
};

// Tail calls are what makes the threading cheap: guaranteed with Clang, done by GCC when it optimizes.
// In other builds calls nest within a block, which is bounded, and blocks return to the dispatcher.
#if defined(__clang__)
#define SKIDPROOF_TAIL [[clang::musttail]] return
#define SKIDPROOF_CHAINS_BLOCKS 1
#else
#define SKIDPROOF_TAIL return
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
#define SKIDPROOF_CHAINS_BLOCKS 1
#else
#define SKIDPROOF_CHAINS_BLOCKS 0
#endif
#endif
#define SKIDPROOF_NEXT(state, op, clock, remaining) \
  SKIDPROOF_TAIL(op)[1].handler(state, (op) + 1, clock, remaining)

// ---- How handlers reach memory: through the core model, or bare.

inline constexpr uint64_t kFaulted = UINT64_MAX;

// Ends execution with a fault at `op`, the clock having reached `now`.
inline uint64_t refuse(State& s, const Operation* op, Fault fault, uint64_t address, uint64_t now) {
  s.clock = now;
  s.fault = fault;
  s.fault_at = op;
  s.fault_address = address;
  return kFaulted;
}

// The rights to an operand. Where the one that is needed is missing the address becomes one of the
// mode first, if it was none.
[[gnu::always_inline]] inline unsigned rights_to(const State& s, uint64_t& address, unsigned bytes,
                                                 GuestMemory::PageBits needed) {
  unsigned rights = s.memory->rights(address, bytes);
  if ((rights & needed) != 0) [[likely]]
    return rights;
  address &= s.address_mask;
  return s.memory->rights_across_pages(address, bytes);
}

struct Modelled {
  static bool load_is_quick(State& s, uint64_t address, unsigned bytes) {
    return s.core->load_is_quick(address, bytes);
  }
  static bool store_is_quick(State& s, uint64_t address, unsigned bytes) {
    return s.core->store_is_quick(address, bytes);
  }
  static bool stream_is_quick(State& s, uint64_t address, unsigned bytes) {
    return s.core->stream_is_quick(address, bytes);
  }
  // Each returns the stall, or kFaulted, and wraps the address where the mode does.
  [[gnu::always_inline]] static uint64_t load(State& s, const Operation* op, uint64_t& address,
                                              unsigned bytes, uint64_t now, uint8_t chase = 0) {
    unsigned rights = rights_to(s, address, bytes, GuestMemory::kMapped);
    if (!(rights & GuestMemory::kMapped)) [[unlikely]]
      return refuse(s, op, Fault::kLoad, address, now);
    return s.core->load(address, bytes, now, chase != 0, !(rights & GuestMemory::kWritable));
  }
  [[gnu::always_inline]] static uint64_t store(State& s, const Operation* op, uint64_t& address,
                                               unsigned bytes, uint64_t now) {
    if (!(rights_to(s, address, bytes, GuestMemory::kWritable) & GuestMemory::kWritable))
        [[unlikely]]
      return refuse(s, op, Fault::kStore, address, now);
    return s.core->store(address, bytes, now, false);
  }
  [[gnu::always_inline]] static uint64_t stream(State& s, const Operation* op, uint64_t& address,
                                                unsigned bytes, uint64_t now) {
    if (!(rights_to(s, address, bytes, GuestMemory::kWritable) & GuestMemory::kWritable))
        [[unlikely]]
      return refuse(s, op, Fault::kStore, address, now);
    return s.core->store_stream(address, bytes, now, false);
  }
  // Ends with a fault where a load of the byte would; returns 0 or kFaulted.
  static uint64_t flush(State& s, const Operation* op, uint64_t address, uint64_t now) {
    if (!(rights_to(s, address, 1, GuestMemory::kMapped) & GuestMemory::kMapped)) [[unlikely]]
      return refuse(s, op, Fault::kLoad, address, now);
    s.core->flush(address);
    return 0;
  }
  static uint64_t conditional(State& s, const Operation* op, bool taken) {
    return s.core->conditional(op[1].slots, taken);
  }
};

struct Bare {
  static bool load_is_quick(State& s, uint64_t address, unsigned bytes) {
    return s.memory->rights(address, bytes) & GuestMemory::kMapped;
  }
  static bool store_is_quick(State& s, uint64_t address, unsigned bytes) {
    return s.memory->rights(address, bytes) & GuestMemory::kWritable;
  }
  static bool stream_is_quick(State& s, uint64_t address, unsigned bytes) {
    return s.memory->rights(address, bytes) & GuestMemory::kWritable;
  }
  static uint64_t load(State& s, const Operation* op, uint64_t& address, unsigned bytes,
                       uint64_t now, uint8_t = 0) {
    return rights_to(s, address, bytes, GuestMemory::kMapped) & GuestMemory::kMapped
               ? 0
               : refuse(s, op, Fault::kLoad, address, now);
  }
  static uint64_t store(State& s, const Operation* op, uint64_t& address, unsigned bytes,
                        uint64_t now) {
    return rights_to(s, address, bytes, GuestMemory::kWritable) & GuestMemory::kWritable
               ? 0
               : refuse(s, op, Fault::kStore, address, now);
  }
  static uint64_t stream(State& s, const Operation* op, uint64_t& address, unsigned bytes,
                         uint64_t now) {
    return store(s, op, address, bytes, now);
  }
  static uint64_t flush(State& s, const Operation* op, uint64_t address, uint64_t now) {
    return load(s, op, address, 1, now);
  }
  static uint64_t conditional(State&, const Operation*, bool) { return 0; }
};

// ---- Choosing handlers. Each returns null when it has none for the instruction.

struct Selection {
  bool modelled = true;     // through the core model
  bool flags_dead = false;  // no later instruction can see the flags that it sets
  bool single = false;      // executed alone: a branch leaves to the dispatcher
};

Handler select_integer(const model::Decoded& decoded, const Selection& selection);
Handler select_vector(const model::Decoded& decoded, const Selection& selection);
// Puts the registers of an instruction that select_vector knows where its handler looks for them.
void arrange_vector(const model::Decoded& decoded, Operation& op);
// The place in State of a general or vector register.
uint16_t offset_of(ZydisRegister reg);
// MOV from or to SS, which holds what Linux gives user code.
Handler select_stack_segment(const model::Decoded& decoded);
Handler select_branch(const model::Decoded& decoded, const Selection& selection);
// STOS and MOVS in their widths, alone or repeated; select_string is asked for nothing else.
bool is_string(const model::Decoded& decoded);
Handler select_string(const model::Decoded& decoded, const Selection& selection);
// A macro-fused pair as one operation: `first` with its operands, `second`'s condition.
Handler select_pair(const model::Decoded& first, const model::Decoded& second,
                    const Selection& selection);
// The end of a block that is no branch, and of a single instruction.
Handler end_of_block();
Handler end_of_single();

}  // namespace skidproof::engines

#endif  // SKIDPROOF_PEBS_ENGINES_OPERATION_H_
