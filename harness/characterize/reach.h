// How far something reaches: the size at which a cost leaves its plateau.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_REACH_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_REACH_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/expected.h"
#include "harness/characterize/plan.h"
#include "harness/characterize/workbench.h"

namespace skidproof {

// One size and what it cost: the median of its samples with the 95 % interval, and the least of them. Whatever disturbs
// (another thread on the same core, of another guest too) makes dearer, so that verdicts look at the least.
struct CurvePoint {
  uint64_t x = 0;
  double value = 0, low = 0, high = 0, least = 0;
  uint64_t n = 0;
  std::string interval = {};        // what low and high cover: "95% of the median"
  std::vector<double> cycles = {};  // of each sample
  std::vector<Counts> counts = {};  // of the same, where something was counted
  double control = 0;               // what value, low, high and least are the excess over
};

// Whether the least of all samples is believed, or the least but for some of `n`: where now and then one is too cheap, as is a
// miss that finds its line in a cache.
enum class Trust : uint8_t { kLeast, kAllButFew };
size_t forgiven(Trust trust, size_t n);

// Of a point's samples in cycles: what they are above the least of its control.
CurvePoint curve_point(uint64_t x, const Point& point, Trust trust = Trust::kLeast);

// What of a unit's counts says that it missed what ends.
using Misses = std::function<double(const Counts& unit)>;

// Points that are looked at by turns, again and again: what their samples say adds up.
class Looks {
 public:
  using MakePoint = std::function<Expected<Point>(uint64_t x)>;
  // `anew`: makes them again for each look, elsewhere in memory.
  Looks(const Workbench& bench, MakePoint make, bool anew = false, Trust trust = Trust::kLeast);
  Expected<void> at(const std::vector<uint64_t>& xs, double seconds, double from = 0,
                    double to = 1);
  // Of all that were looked at, by x. One that cannot be sampled is a problem of the report, and missing.
  std::vector<CurvePoint> curve() const;

 private:
  const Workbench& bench_;
  MakePoint make_;
  bool anew_;
  Trust trust_;
  std::map<uint64_t, Point> made_;
  std::map<uint64_t, Point> samples_;  // cycles, control and counts alone
};

struct ReachQuestion {
  std::string what;           // "return stack": for people
  uint64_t from = 1, to = 1;  // sizes to look at, both included
  uint64_t grain = 1;         // sizes are multiples of it; the answer is no finer
  double growth = 1.3;        // of one size over the one before, in the first, coarse look
  double least_rise = 0.5;    // cycles by which the cost rises at least, where something ends
  // Seconds in which what is not clear is looked at again, where more than those of the whole question.
  double patience = 0;
  // What ends does so at once: the first size beyond adds at least two fifths of what sizes up to twice as large add; or set
  // by set: it is flat up to its end, and adds three quarters where sets of four ways or more have one too many each. A slope
  // that begins early (sets that a hash fills unevenly, a cache that others share) says nothing of where it ends.
  bool sharp = false;
  Misses misses = {};  // the second witness; empty: there is none
  // Makes the point of one size; its samples are of one unit of work (a jump, a load).
  Looks::MakePoint point;
  // Of Looks: where memory lies has a say, so ends are looked at in several places.
  bool anew = false;
  Trust trust = Trust::kLeast;
};

struct Reach {
  std::vector<CurvePoint> curve;  // of all sizes that were looked at, by size
  bool clear = false;             // or `why` says what was missing
  std::string why;
  uint64_t last_within = 0;       // the largest size that costs what small ones do
  uint64_t first_beyond = 0;      // the smallest that costs more
  double within = 0, beyond = 0;  // what they cost
  uint64_t odd = 0;               // where not clear: the size that stands in the way, if one does
};

// Looks at sizes that grow by `growth`, all by turns, for the first rise that stays; then halves the interval between the
// last size on the plateau and the first above it until they are `grain` apart. Clear where, both ends sampled again
// together, no size up to the last within costs more than half the least rise above the plateau, and none from the first
// beyond less.
Expected<Reach> find_reach(const Workbench& bench, const ReachQuestion& question, double seconds,
                           double from = 0, double to = 1);

// The same judgement over a curve that is there already. No size is added. Where samples are there, an end is clear only if
// those of the first size beyond are too many to have been disturbed one and all, by how often the last size within was:
// on a core that is shared it may be that few find it undisturbed, and chance decides where they do.
Reach judge_reach(std::vector<CurvePoint> curve, double least_rise, bool sharp = false);

// Whether all samples of `beyond` may be disturbed ones of what costs less than `border`, as some of `within` are: chance
// would do that with more than 1 in 10,000.
bool may_be_disturbed(const CurvePoint& within, const CurvePoint& beyond, double border);

// The least misses of a unit that counters saw at a size; empty where none did, undisturbed.
std::optional<double> least_misses(const CurvePoint& point, const Misses& misses);
// What must miss at least where so many more than fit are walked by turns, whatever replaces: of each round those.
double unavoidable_misses(uint64_t fit, uint64_t walked);
// An end that the time shows must show in what was counted, too: by misses of less than half of what must miss at the
// first size beyond, at the last within, and of more than that half there. Else it is not clear. Nothing where either
// was not counted.
void ask_counters(Reach& reach, const Misses& misses);

// One row of a curve, in cycles.
void emit_curve_point(const Workbench& bench, const std::string& name, const CurvePoint& point,
                      MeasurementParameters parameters);

// Why so many ways, bytes or entries are not believed where CPUID tells of more; empty where it does not. What else stands on
// the core takes away, and never adds: its other thread may keep ways of each set for as long as anybody looks, and each look
// agrees (12 ways of a first level were 10 so). `spare`: so many that are missing are no sign of anybody.
std::string short_of_told(uint64_t found, uint64_t told, const std::string& unit,
                          const std::string& leaf, uint64_t spare = 0);

// Why an end is not believed where nothing tells how many there are, and threads of a core take what they need of all: most samples
// of the last size within are dearer, so that somebody took of it, and the first beyond may fit where nobody does. Empty where
// most are not.
std::string taken_by_others(const Reach& reach, double least_rise);

// What was inferred, as "shape.<name>".
struct Inferred {
  std::string name;
  std::string unit;
  double value = 0, low = 0, high = 0;
  uint64_t n = 1;  // sizes, distances or samples that it was inferred from
  std::string interval = "last within, first beyond";
  MeasurementParameters parameters = {};
  Noise noise = {};
};
void emit_inferred(const Workbench& bench, Inferred inferred);

// Where a curve ends, as "shape.<shape>", or why that is not clear.
void emit_end(const Workbench& bench, const Reach& reach, const std::string& shape,
              const std::string& unit, const MeasurementParameters& parameters = {});

// The rows of a question: each point of the curve as `curve` (cycles; parameters and `size_key`), and the answer as
// "shape.<shape>" (statistic "inferred"; low and high: last within and first beyond), or, where it is not clear, why there
// is none.
void emit_reach(const Workbench& bench, const Reach& reach, const std::string& curve,
                const std::string& size_key, const MeasurementParameters& parameters,
                const std::string& shape, const std::string& unit);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_REACH_H_
