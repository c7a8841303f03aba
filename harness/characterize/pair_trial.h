// Which layout of the code is asked next whether a pair of instructions fuses, and when what they say is a verdict.
//
// A layout can be blind on some core: it says of pairs that fuse that they gain nothing, and says so in every run (on one with
// Redwood Cove's sizes such as have ten no-operations on each side of a single pair: the loop takes as many cycles with a slot less,
// and yet each no-operation seems to be worth one). The other error, a gain where there is none, was not met. So scouts ask all
// layouts, and one that missed pairs which others showed to fuse is not believed when it says "no gain".
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_PAIR_TRIAL_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_PAIR_TRIAL_H_

#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "harness/characterize/verdict.h"

namespace skidproof {

// What one layout said of one pair, each time in another place in memory: caches of decoded code find it by its address, so that
// a place can mislead.
struct Sayings {
  unsigned fused = 0, no_gain = 0;
};

// How far each layout can be believed on this core. Taken jumps limit code in ways of their own, so they have records of their own.
class LayoutRecords {
 public:
  explicit LayoutRecords(size_t layouts) : of_(layouts) {}
  // A pair that is done with: its verdict, and what each layout said of it.
  void add(bool taken, PairVerdict verdict, const std::vector<Sayings>& said);
  // Whether "no gain" of such pairs is believed there: it showed pairs that fuse, and missed hardly any. Where no layout showed
  // any, none can be told from another, and all are.
  bool trusted(size_t layout, bool taken) const;
  // Whether the first is the better to ask.
  bool better(size_t layout, size_t than, bool taken) const;

 private:
  struct Record {
    unsigned fused = 0, missed = 0, no_gain = 0;
  };
  bool any_fused(bool taken) const;
  std::vector<std::array<Record, 2>> of_;  // by taken
};

class PairTrial {
 public:
  // `usable`: the layouts that may be asked, at least one. `scout`: all of them are, once. Where `certain`, as nothing disturbs
  // and all layouts tell the truth (on a model), the first that says anything is believed.
  PairTrial(std::vector<bool> usable, bool taken, bool scout, bool certain);

  // The layout that is sampled, and whether in a new place from the next sample on; that clears it.
  size_t at() const { return at_; }
  bool take_new_place();

  // What the layouts together show of a scout: kFused where one says so in two places, and none there denies it.
  PairVerdict shown() const;
  // All scouts are back: from now on as any other.
  void end_scouting() { scout_ = false; }
  // Asks the best layout next, where nothing was said yet.
  void begin(const LayoutRecords& records);
  // The others are done: from now on time alone ends it. A layout that could not tell is asked in some places more: a busy sibling
  // thread makes code seem limited by other things than its instructions, too.
  void at_the_end() {
    at_the_end_ = true;
    usable_ = of_this_core_;
    refusals_.assign(refusals_.size(), 0);
  }
  // After a sample: what all in this place say together, and whether more of the same are likely to tell. True where nothing more
  // is to be sampled for now.
  bool hear(PairVerdict judged, bool leaning, const LayoutRecords& records);
  // kFused or kNoGain, else kOpen: two places more say so than say the other, for "no gain" in two trusted layouts, unless no
  // other can tell.
  PairVerdict verdict(const LayoutRecords& records) const;
  const std::vector<Sayings>& said() const { return said_; }
  bool taken() const { return taken_; }

 private:
  bool stay();
  // On to the layout to ask next, false where none is left.
  bool move_on(const LayoutRecords& records);
  bool believed(size_t layout, const LayoutRecords& records) const;

  std::vector<bool> of_this_core_;  // as the constructor was told
  std::vector<bool> usable_;        // those too that cannot tell of this pair are not
  bool taken_, scout_, certain_, at_the_end_ = false, new_place_ = true;
  size_t at_ = 0;
  unsigned samples_ = 0;            // in this place
  std::vector<unsigned> visits_;    // ended ones
  std::vector<unsigned> refusals_;  // places in which it could not tell
  std::vector<Sayings> said_;
};

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_PAIR_TRIAL_H_
