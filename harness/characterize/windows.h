// What the curves of the two-miss method say: pure judgement.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_WINDOWS_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_WINDOWS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/characterize/reach.h"

namespace skidproof {

// How many of one filler stand between two misses that overlap.
struct WindowSize {
  bool clear = false;  // or `why` says what was missing
  std::string why;
  uint64_t size = 0;      // the largest that costs less than half of a second miss
  uint64_t low = 0;       // the largest that costs none of it
  uint64_t high = 0;      // the smallest that costs all of it
  double border = 0;      // cycles in the middle between both
  uint64_t at_least = 0;  // where not clear: it is no smaller
  size_t sizes = 0;       // that were looked at
};

// `miss`: cycles of one. The edge may be soft, since what is allocated together is freed together: it is clear where it lies
// within 1/16 of the size, or eight.
WindowSize judge_window(std::vector<CurvePoint> curve, double miss);

// Samples of each size that were taken while the core was whole: nobody else issued anything, and before and behind each of them
// what fits into a whole core did. A size of a sixteenth less cost no second miss, which it does where another thread of the core
// waits and has its half; and neither did the witness, where there is one.
using WholeSamples = std::map<uint64_t, Point>;
// Whether there are enough of them to believe that a size ends something.
bool known_whole(const WholeSamples& whole, uint64_t size);

// What fits into a queue that threads of a core have half of each, however little they do: whoever takes a few of what is given by
// need (registers: 220 were left of 240) shows there.
struct Witness {
  Looks::MakePoint point;
  uint64_t size = 0;
  double border = 0;  // cycles; above them it did not fit
};
// Of a window's edge, with some room.
Witness witness_of(const ReachQuestion& question, const WindowSize& edge);

// More sizes where a soft edge begins and ends, until it is known to within two entries; then samples of both ends with the core
// whole, and on from where they move it to, for so many seconds. A sample of `question` that is `spoiled` was not taken alone.
Expected<void> look_closer(const Workbench& bench, const ReachQuestion& question, double miss,
                           const std::optional<Witness>& witness, double seconds,
                           WholeSamples& whole, Reach& reach);

// What else a window's fillers take, so that it may be this that ended. Keys are the kernel's words for fillers. A size that
// comes within 1/16 of what another resource allows is not clear: entries are given out in groups, and from run to run a few
// more or less are free.
//   - general registers, vector registers and queues end before the reorder buffer, or are not seen;
//   - loads write general and vector registers by turns; what waits in the scheduler has a register as well;
//   - the mixture's own needs are eight general registers, six of vectors and two stores in sixteen.
void judge_windows_together(std::map<std::string, WindowSize, std::less<>>& windows);

// Of one mixture in two orders that of which more are held; where one is not clear and may be larger, neither is.
WindowSize more_of(const WindowSize& one, const WindowSize& other);

// No-operations take nothing but a place in the reorder buffer, but some cores keep two to an entry or none at all; other
// instructions cannot be told to. Where no-operations end at about the same size as the mixture (which may end a tenth
// earlier, by the groups in which it is allocated), or as one kind of instruction alone, it is theirs; else that of the
// mixture, unless one kind alone is held in larger numbers: then something else ends the mixture, and it is not clear. Nor is
// it where much more of the mixture is held when two of a kind stand in a row ("mixed_pairs"): then how many an entry takes
// depends on what they are (Zen 4: 237 and 362, where 320 entries are published).
WindowSize judge_reorder_buffer(const std::map<std::string, WindowSize, std::less<>>& windows);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_WINDOWS_H_
