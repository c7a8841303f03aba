// Jumps that are always taken, at equal distances: what one costs by how many there are, by how far apart they stand, and
// by where in its line a target begins.
#include <cstring>

#include "kernels/jit/emitter.h"

namespace skidproof::taken_jumps {
namespace {

enum Kind : uint64_t { kJmp, kJcc };
enum Entry : uint64_t { kFirst, kData };

constexpr uint64_t kRunBytes = 4;   // of a no-operation that is executed
constexpr uint64_t kJumpBytes = 2;  // with a displacement of one byte
constexpr uint64_t kNopBytes = 9;   // the longest no-operation
constexpr uint64_t kLine = 64;

// No-operations in front of the first target; an entry by the data jumps over them.
uint64_t lead(const Params& p) {
  return p["entry"] == kData ? 0 : (p["offset"] + kNopBytes - 1) / kNopBytes;
}

}  // namespace

SKIDPROOF_KERNEL(taken_jumps){
    .brief = "jumps over what stands between them, one after another",
    .parameters =
        {{.name = "jumps",
          .brief = "of the whole chain",
          .fallback = 16,
          .low = 1,
          .high = 64 << 10},
         {.name = "spacing",
          .brief = "bytes from one target to the next",
          .fallback = 16,
          .low = kJumpBytes,
          .high = 128},
         {.name = "offset",
          .brief =
              "bytes from the beginning of a line to the first target; no-operations stand there",
          .high = 127},
         {.name = "run",
          .brief = "no-operations of four bytes between a target and its jump",
          .high = 31},
         {.name = "kind",
          .brief = "jcc: conditional ones, whose targets a decoder does not follow by itself",
          .words = {"jmp", "jcc"}},
         {.name = "entry",
          .brief =
              "data: an iteration begins with an indirect jump over as many as the data say, so "
              "that the same code serves for fewer jumps",
          .words = {"first", "data"}},
         {.name = "skip", .brief = "how many of them that is", .high = (64 << 10) - 1}},
    .check = [](const Params& p) -> Expected<void> {
      if (kRunBytes * p["run"] + kJumpBytes > p["spacing"]) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("{} no-operations and a jump are longer than {} bytes", p["run"],
                                p["spacing"]),
                    "more spacing, or a shorter run");
      }
      if (p["skip"] >= p["jumps"] || (p["skip"] != 0 && p["entry"] == kFirst)) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("{} of {} jumps are skipped", p["skip"], p["jumps"]),
                    "skip fewer than all, with entry=data");
      }
      return {};
    },
    .data_bytes = [](const Params& p) -> size_t {
      return p["entry"] == kData ? sizeof(uint64_t) : 0;
    },
    .fill =
        [](const Params& p, std::span<std::byte> host, uint64_t, uint64_t) {
          if (host.empty()) return;
          const uint64_t bytes = p["skip"] * p["spacing"];
          std::memcpy(host.data(), &bytes, sizeof bytes);
        },
    .per_iteration =
        [](const Params& p) {
          const uint64_t jumps = p["jumps"] - p["skip"];
          Expectations one{.instructions = (p["run"] + 1) * jumps + lead(p),
                           .branches_taken = jumps};
          if (p["entry"] == kData) one += {.instructions = 3, .loads = 1, .branches_taken = 1};
          return one;
        },
    // An iteration begins where the loop's own JNZ was taken, so that JNE is taken as well: nothing in a chain writes
    // flags, and the ADD of an entry leaves an address, which is not 0.
    .body =
        [](Emitter& e, const Params& p) {
          const asmjit::Label first = e.newLabel();
          if (p["entry"] == kData) {
            e.lea(x86::rax, x86::ptr(first));
            e.mark("load");
            e.add(x86::rax, data_at(0));
            e.jmp(x86::rax);
            e.nops_until((e.address() + kLine - 1) / kLine * kLine);
          }
          uint64_t target = e.address() + p["offset"];
          e.nops_until(target);
          e.bind(first);
          e.mark("jump");
          for (uint64_t i = 0; i < p["jumps"]; ++i) {
            const asmjit::Label next = e.newLabel();
            for (uint64_t nop = 0; nop < p["run"]; ++nop) e.nop_of(kRunBytes);
            p["kind"] == kJmp ? e.short_().jmp(next) : e.short_().jne(next);
            target += p["spacing"];
            e.unreached_until(target);
            e.bind(next);
          }
        },
};

}  // namespace skidproof::taken_jumps
