// Whether a pair of instructions takes one slot or two, from samples that disagree.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_VERDICT_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_VERDICT_H_

#include <cstdint>
#include <vector>

namespace skidproof {

// Samples of one pair of instructions, in cycles each: side by side they cost less by `gain` than apart. An instruction
// less, the code being as long as before, costs less by `slot_apart` in the code where they are apart, by `slot_together`
// in the other, and `slot_gain` is what the pair gains there; `next_apart`, `next_together` and `next_gain` are the same of one
// more (empty: not tried). `share` is what an instruction takes on average.
struct PairSamples {
  std::vector<double> gain, slot_apart, slot_together, slot_gain, next_apart, next_together,
      next_gain, share;
  double slot() const;  // the mean of both medians
  PairSamples& operator+=(const PairSamples& more);
};

enum class PairVerdict : uint8_t {
  kOpen,      // more samples may tell
  kFused,     // the gain is a slot
  kNoGain,    // there is none
  kNotIssue,  // something else than the number of instructions limits this code: it cannot tell
};

// Each sample votes: its slots by the side of half its share on which they lie, its gain by the side of half a slot. Votes
// decide by Wald's sequential test of a share of 3/4 against one of 1/4, errors below 1 in 10⁸ (Wald, "Sequential Tests
// of Statistical Hypotheses", 1945): where a core is shared with another thread the right side has less than 3/4, and
// hundreds of pairs are judged. The medians must agree: all slots are worth an average instruction, the gain is a slot or
// nothing, and with an instruction less it is on the same side of half a slot. Code that only happens to be slow, as where it
// does not fit the caches of decoded instructions, so stays open; its time may rise by about a slot for one instruction, but
// hardly for each.
PairVerdict judge_pair(const PairSamples& samples);

// Whether more of the same samples are likely to decide.
bool leaning(const PairSamples& samples);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_VERDICT_H_
