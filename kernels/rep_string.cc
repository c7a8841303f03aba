// Memory filled or copied by one repeated string instruction each iteration.
#include <cstring>

#include "base/random.h"
#include "kernels/jit/emitter.h"

namespace skidproof::rep_string {
namespace {

enum Kind : uint64_t { kMovsb, kStosb, kMovsq, kStosq };

bool copies(const Params& p) { return p["kind"] == kMovsb || p["kind"] == kMovsq; }
uint64_t element(const Params& p) { return p["kind"] == kMovsb || p["kind"] == kStosb ? 1 : 8; }
// As in memory_stream: a copy's target is no multiple of 4 KiB away.
uint64_t target_offset(const Params& p) { return (p["bytes"] + 4095) / 4096 * 4096 + 2048; }

}  // namespace

SKIDPROOF_KERNEL(rep_string){
    .brief = "fills or copies memory with one repeated string instruction",
    .parameters = {{.name = "kind",
                    .brief =
                        "of the instruction; a copy reads the first `bytes` and writes behind them",
                    .words = {"movsb", "stosb", "movsq", "stosq"}},
                   {.name = "bytes",
                    .brief = "each iteration; a multiple of an element",
                    .fallback = 256,
                    .high = uint64_t{1} << 30}},
    .check = [](const Params& p) -> Expected<void> {
      if (p["bytes"] % element(p) == 0) return {};
      return fail(ErrorCode::kInvalidArgument, "bytes is not a multiple of an element",
                  "movsq and stosq take eight");
    },
    .data_bytes = [](const Params& p) -> size_t {
      return copies(p) ? target_offset(p) + p["bytes"] : p["bytes"];
    },
    .fill =
        [](const Params& p, std::span<std::byte> host, uint64_t, uint64_t seed) {
          if (!copies(p)) return;
          Random random(derive_seed(seed, "rep_string"));
          std::vector<std::byte> noise(4096);
          for (std::byte& b : noise) b = static_cast<std::byte>(random.next());
          for (size_t i = 0; i < p["bytes"]; i += noise.size()) {
            std::memcpy(&host[i], noise.data(), std::min<size_t>(noise.size(), p["bytes"] - i));
          }
        },
    .per_iteration =
        [](const Params& p) {
          return copies(p) ? Expectations{.instructions = 7, .loads = 1, .stores = 1}
                           : Expectations{.instructions = 5, .stores = 1};
        },
    // Not zero, which some processors store in ways of its own.
    .setup =
        [](Emitter& e, const Params& p) {
          if (!copies(p)) e.mov(x86::rax, 0x5555555555555555u);
        },
    .body =
        [](Emitter& e, const Params& p) {
          e.mov(x86::r8, kCounter);
          e.mov(x86::ecx, p["bytes"] / element(p));
          if (copies(p)) {
            e.mov(x86::r9, kData);
            e.lea(x86::rdi, data_at(static_cast<int32_t>(target_offset(p))));
          } else {
            e.mov(x86::rdi, kData);
          }
          e.mark("string");
          switch (p["kind"]) {
            case kMovsb:
              e.rep().movsb();
              break;
            case kStosb:
              e.rep().stosb();
              break;
            case kMovsq:
              e.rep().movsq();
              break;
            default:
              e.rep().stosq();
              break;
          }
          if (copies(p)) e.mov(kData, x86::r9);
          e.mov(kCounter, x86::r8);
        },
    .long_mode_only = true,
    .string_instructions = true,
};

}  // namespace skidproof::rep_string
