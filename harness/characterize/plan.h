// The measurement plan: many points, each sampled by turns with the others until it is known well enough.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_PLAN_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_PLAN_H_

#include <chrono>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/expected.h"
#include "harness/characterize/workbench.h"

namespace skidproof {

// One thing that is measured.
struct Point {
  std::string what;                          // "latency, 64 KiB": for people
  std::function<Expected<Sample>()> sample;  // of one unit of its work: a load, a byte, a pair
  // What its interval is measured in: cycles of the core, or time where another clock decides (memory).
  bool by_time = false;
  // Of a difference, which may be near 0: what it is compared with, in the same unit.
  double scale = 0;
  // What its figure is of its samples' times. Its interval is that of the same.
  Statistic figure = Statistic::kMedian;
  unsigned least = 0;  // samples before it may be done, where more than the goal's
  // In place of the interval's width, where something else decides that the point is known.
  std::function<bool()> enough = {};
  size_t tag = 0;  // the part's own
  // Points of one race, by its name, do the same in different ways, and the best is what is asked for: where the time is
  // short, one that is surely slower than another has samples enough.
  std::string race = {};

  std::vector<double> ns, cycles, control, probed;  // the samples
  std::vector<Counts> counts;                       // of each
  Noise noise;
  uint64_t spoiled = 0;     // samples in each of whose runs another had the CPU
  uint64_t in_company = 0;  // samples of the figure that were not taken alone: drop_company
  bool narrow = false;      // the interval became narrow enough

  double median_ns() const;
  double median_cycles() const;
};

// Samples from which the 95 % interval of a quartile lies between two of them.
constexpr unsigned kOfAQuartile = 11;

struct Goal {
  // Half the 95 % interval of the point's figure, of the figure (or of Point::scale). A quartile has such an interval from
  // kOfAQuartile samples on; for a quick look that of six will do, which covers 82 %.
  double relative = 0.005;
  unsigned least = 6;  // samples before a point may be done
  unsigned most = 40;
  double seconds = 0;  // of all points together; 0: what is left of the part's
  // The clock, and what others do to shared levels, change from second to second: a point's samples stand at least so many
  // seconds apart, the first from the last, however narrow their interval. Within `seconds`.
  double span = 0;
};

// Only there may others disturb.
bool on_silicon(const Workbench& bench);

// How often what stands in the way of a verdict is looked at: it may have been disturbed. While there is time; where others
// may disturb, ever further apart, for what they do can last a second, and eight times at most elsewhere.
class MoreLooks {
 public:
  // From now on, so many seconds.
  MoreLooks(const Workbench& bench, double seconds);
  // True the first time. Then waits until the next look is due; false where no time is left for it.
  bool another();

 private:
  using Clock = std::chrono::steady_clock;
  double spent() const;
  const Workbench& bench_;
  double seconds_;
  Clock::time_point began_ = Clock::now(), last_ = began_;
  int looks_ = 0;
};

// Goal::span of what neighbours can disturb: what they do to a shared level and to the clock lasts about a second, of which
// this is some. 0 for a quick look, and where nobody is beside: on what is no silicon.
double usual_span(const Workbench& bench);
// How long one run through memory takes. What the harness and the kernel do between two runs drives lines out of the caches,
// which the next one meets farther away: these shall be few of its loads. In 50 us, walks through 256 KiB of a second-level
// cache took up to a tenth more, by where their pages lay.
double usual_run_ns(const Workbench& bench);
// In how many laps such a run is timed where a core's own caches answer: of 20 us each. A hypervisor may take the CPU for two
// microseconds out of every fifty (interrupts of the host, which no count of the guest's shows): the least of ten runs of 300 us
// was one to three per cent too long, by another share each minute. Hardly a lap of 20 us meets one in each of ten tries.
uint64_t usual_laps(const Workbench& bench, uint64_t iterations);
// What share of its planned seconds a part gets that begins now, so that the whole run ends by `limit` seconds. Parts take longer
// than planned where programs are slow to make or another takes the CPU: those to come will by as much as those before did.
// From kLeastShare, with which a part still answers, to 1.
double share_of_plan(double planned_before, double elapsed, double planned_rest, double limit);
constexpr double kLeastShare = 0.4;
// Up to here a core's own caches may hold a window.
constexpr uint64_t kOfACore = uint64_t{2} << 20;
// In how many places a window of so many bytes is measured, one after the other. Where a hypervisor backs large pages with small
// ones, chance decides which lines of it meet in a set, and one place is one throw of it: walks through 768 KiB of a second-level
// cache of 1 MiB differed by a fifth from one to another, loads of 256 KiB by 3 %. Most where a core's own caches may hold it,
// fewer up to `shared`, one where it is larger, and on what is no silicon.
size_t places_of(const Workbench& bench, uint64_t window, uint64_t shared = kOfACore);

// Samples all points by turns, in an order that the seed draws anew for each round, so that drift becomes spread and not
// shape; those that are narrow enough drop out. When the time is over, rounds end once each point has `least` samples; at
// twice the time, or the part's again, they end anyway. Where `most` rounds do not fit into the time, what has lost a race drops
// out from `least` rounds on, and the worse half of those that have not, down to three: what time there is is the best's. Where
// the time is over before, from three rounds on. A point whose sample fails becomes a problem and is removed. Cancelled: returns
// early.
Expected<void> take_by_turns(const Workbench& bench, std::vector<Point>& points, const Goal& goal,
                             double from = 0, double to = 1);

// Drops the samples that are false in `which`, which has one of each; what was thrown away among their runs stays counted.
void keep_samples(Point& point, const std::vector<bool>& which);
// Keeps the samples beside which a no-operation took no more cycles than `alone`, where there are `enough` of them; else all, and
// says how many were in company.
void drop_company(Point& point, double alone, size_t enough = Goal{}.least);

// For a row of these values, each of a sample of the point: what was counted beside the one that is the row's figure.
std::optional<MeasuredCounts> counts_of(const Workbench& bench, const Point& point,
                                        std::span<const double> values,
                                        Statistic statistic = Statistic::kMedian);

// A point's parameters; `disturbed` among them says how many samples are spoiled, `in_company` how many were not taken alone, if any.
MeasurementParameters parameters_of(const Point& point, MeasurementParameters parameters);
// Rows of a point: its figure, in cycles, in nanoseconds, or in both. Where cycles are what its work takes, the nanoseconds are
// their lower quartile: other cores' work takes away from a clock, for seconds, and never adds.
enum class In : uint8_t { kCycles, kNs, kBoth };
void emit_point(const Workbench& bench, const Point& point, const std::string& name,
                const MeasurementParameters& parameters, In in = In::kBoth);

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_PLAN_H_
