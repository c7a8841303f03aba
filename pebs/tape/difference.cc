#include "pebs/tape/difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "pebs/arch/names.h"

namespace skidproof::tape {
namespace {

template <typename T>
std::vector<Fact> facts_in(Bytes bytes) {
  Decoder in(bytes);
  return facts_of(decode<T>(in));
}

std::vector<Fact> facts_in(Call call, Bytes question) {
  switch (call) {
    case Call::kCpuid:
      return facts_in<Leaf>(question);
    case Call::kReadMsr:
      return facts_in<MsrRead>(question);
    case Call::kWriteMsr:
      return facts_in<MsrWrite>(question);
    case Call::kReadCounter:
      return facts_in<CounterRead>(question);
    case Call::kAllocate:
      return facts_in<MemoryRequest>(question);
    case Call::kRun:
      return facts_in<Errand>(question);
  }
  return {};
}

std::string first_difference(const std::vector<Fact>& on_tape, const std::vector<Fact>& now) {
  const auto [a, b] = std::mismatch(on_tape.begin(), on_tape.end(), now.begin(), now.end());
  const auto said = [](const Fact& fact) { return fmt::format("{} {}", fact.name, fact.value); };
  if (a == on_tape.end() && b == now.end()) return "the question differs in a way without words";
  if (a == on_tape.end()) return fmt::format("{} is new, and not on the tape", said(*b));
  if (b == now.end()) return fmt::format("{} is on the tape, and not there now", said(*a));
  if (a->name != b->name) return fmt::format("{} on the tape, and {} now", said(*a), said(*b));
  return fmt::format("{} was {} on the tape and is {} now", a->name, a->value, b->value);
}

// What encode_question wrote.
struct Written {
  std::map<std::pair<size_t, uint64_t>, std::byte> store;  // of debug stores: block, offset
  std::map<size_t, uint64_t> sums;                         // of data blocks
};
Written written_in(Bytes bytes) {
  Written written;
  Decoder in(bytes);
  for (const Change& change : decode_changes(in)) {
    uint64_t offset = change.offset;
    for (std::byte byte : change.bytes) written.store[{change.block, offset++}] = byte;
  }
  while (in.good() && !in.at_end()) {
    const auto block = static_cast<size_t>(in.number());
    written.sums[block] = in.number();
  }
  return written;
}

// The first key of either whose value is not the same in both; nothing where there is none.
template <typename Map>
std::optional<typename Map::key_type> first_difference(const Map& a, const Map& b) {
  const auto [at, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (at == a.end() && other == b.end()) return std::nullopt;
  if (at == a.end()) return other->first;
  if (other == b.end()) return at->first;
  return std::min(at->first, other->first);
}

std::string value_in(const Written& written, std::pair<size_t, uint64_t> place) {
  const auto found = written.store.find(place);
  if (found == written.store.end()) return "was left alone";
  return fmt::format("was set to {:#04x}", std::to_integer<unsigned>(found->second));
}

std::string block_text(size_t number, const WatchedMemory& memory) {
  if (number >= memory.blocks()) return fmt::format("block {}", number);
  const WatchedMemory::Block& block = memory.block(number);
  return fmt::format("the {} block at {:#x}",
                     block.use == MemoryUse::kDebugStore ? "debug store's" : "data", block.address);
}

}  // namespace

std::string in_words(Call call, Bytes question) {
  Decoder in(question);
  switch (call) {
    case Call::kCpuid: {
      const auto leaf = decode<Leaf>(in);
      return fmt::format("cpuid({:#x}, {})", leaf.leaf, leaf.subleaf);
    }
    case Call::kReadMsr:
      return fmt::format("rdmsr({})", arch::msr_name(decode<MsrRead>(in).msr));
    case Call::kWriteMsr:
      return fmt::format("wrmsr({})", arch::msr_name(decode<MsrWrite>(in).msr));
    case Call::kReadCounter:
      return fmt::format("rdpmc({:#x})", decode<CounterRead>(in).index);
    case Call::kAllocate: {
      const auto request = decode<MemoryRequest>(in);
      return fmt::format("allocate({} bytes)", request.bytes);
    }
    case Call::kRun:
      return "run()";
  }
  return "?";
}

std::string difference(Call call, Bytes on_tape, Bytes now) {
  return first_difference(facts_in(call, on_tape), facts_in(call, now));
}

std::string program_difference(Bytes on_tape, Bytes now) {
  Decoder old_in(on_tape), new_in(now);
  const auto recorded = decode<Program>(old_in), asked = decode<Program>(new_in);
  const std::vector<Fact> then = facts_of(recorded), today = facts_of(asked);
  if (then != today) return "the program's " + first_difference(then, today);
  if (recorded.code.size() != asked.code.size()) {
    return fmt::format("the program's code has {} bytes on the tape and {} now",
                       recorded.code.size(), asked.code.size());
  }
  const auto at = std::mismatch(recorded.code.begin(), recorded.code.end(), asked.code.begin());
  const auto value = [](std::byte byte) { return std::to_integer<unsigned>(byte); };
  if (at.first == recorded.code.end()) return "the program differs in a way without words";
  return fmt::format("the program's code differs at byte {}: {:#04x} on the tape, {:#04x} now",
                     at.first - recorded.code.begin(), value(*at.first), value(*at.second));
}

std::string memory_difference(Bytes on_tape, Bytes now, const WatchedMemory& memory) {
  const Written then = written_in(on_tape), today = written_in(now);
  if (const auto place = first_difference(then.store, today.store)) {
    return fmt::format("byte {:#x} of {} {} on the tape and {} now", place->second,
                       block_text(place->first, memory), value_in(then, *place),
                       value_in(today, *place));
  }
  if (const auto block = first_difference(then.sums, today.sums)) {
    return fmt::format("{} was not filled as it was for the tape", block_text(*block, memory));
  }
  return "memory differs in a way without words";
}

}  // namespace skidproof::tape
