// Tapes from anywhere: whatever the bytes, they are refused, or are read as far as they are whole. Sections are tried
// as they are as well, since no fuzzer guesses the sums around them: a machine replays them to whatever asks.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/random.h"
#include "pebs/tape/event.h"
#include "pebs/tape/reader.h"
#include "pebs/tape/tape_machine.h"
#include "pebs/tape/writer.h"

namespace {

using namespace skidproof;
using namespace skidproof::tape;

void ask(TapeMachine& machine, const Event& event, std::vector<Memory>& blocks) {
  Decoder in(event.question);
  switch (event.call) {
    case Call::kCpuid: {
      const auto leaf = decode<Leaf>(in);
      machine.cpuid(leaf.leaf, leaf.subleaf);
      break;
    }
    case Call::kReadMsr:
      static_cast<void>(machine.rdmsr(decode<MsrRead>(in).msr));
      break;
    case Call::kWriteMsr: {
      const auto write = decode<MsrWrite>(in);
      static_cast<void>(machine.wrmsr(write.msr, write.value));
      break;
    }
    case Call::kReadCounter:
      static_cast<void>(machine.rdpmc(decode<CounterRead>(in)));
      break;
    case Call::kAllocate: {
      auto request = decode<MemoryRequest>(in);
      if (request.bytes > 1 << 20) return;  // a test's own wish
      auto block = machine.allocate(request);
      if (block) blocks.push_back(std::move(*block));
      break;
    }
    case Call::kRun: {
      Decoder program(event.program);
      const auto errand = decode<Errand>(in);
      static_cast<void>(machine.run(decode<Program>(program), errand.plan));
      break;
    }
  }
}

// Asks just what the section says, as far as it says anything.
void replay(std::span<const std::byte> content) {
  Decoder in(content);
  const SectionHead head = decode_head(in);
  auto machine = TapeMachine::create({content.begin(), content.end()}, head.identity, head.seed);
  if (!machine) return;
  std::vector<Memory> blocks;
  while (in.good() && !in.at_end()) ask(**machine, take_event(in), blocks);
  static_cast<void>((*machine)->finished());
}

void read(std::span<const std::byte> bytes) {
  auto reader = TapeReader::parse(bytes, "fuzz");
  if (!reader) return;
  static_cast<void>((*reader)->content({.test = "Suite.Test"}));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  read(bytes);
  replay(bytes);
  // The same bytes as each kind of frame, with the sums that make them believed.
  std::vector<std::byte> tape = preamble();
  const std::vector<std::byte> header = header_frame({});
  tape.insert(tape.end(), header.begin(), header.end());
  for (FrameKind kind : {FrameKind::kHeader, FrameKind::kSection, FrameKind::kIndex}) {
    const std::vector<std::byte> frame = frame_of(kind, bytes);
    std::vector<std::byte> whole = preamble();
    whole.insert(whole.end(), frame.begin(), frame.end());
    read(whole);
    tape.insert(tape.end(), frame.begin(), frame.end());
    read(tape);
  }
  auto content = unpack({.key = {}, .size = size * 4, .packed = bytes});
  if (content) replay(*content);
  // What was packed comes out again.
  const std::vector<std::byte> packed =
      section_frame({.key = {}, .content = {bytes.begin(), bytes.end()}});
  auto again = unpack(*packed_section(frame_at(packed)->payload));
  if (!again || !same(*again, bytes)) std::abort();
  return 0;
}
