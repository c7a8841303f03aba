// Is another thread of this core at work? It takes half of what the core splits (reorder buffer, load and store queues) and
// issue slots, and no counter of ours says so: under a hypervisor not even that there is one. What shows it is the rate of
// no-operations, which nothing else lowers: on a Raptor Cove server 5.6 in a cycle alone, 2 to 4 in company.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_COMPANY_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_COMPANY_H_

#include <cmath>
#include <functional>
#include <memory>
#include <vector>

#include "base/expected.h"
#include "harness/characterize/plan.h"
#include "harness/characterize/workbench.h"

namespace skidproof {

// What a no-operation takes where nobody else is there, by all probes up to now: nearly the least of them. One in some thousand
// came out a fifth too short, since the clock had been misread just then (by the chain that a hypervisor interrupted each time);
// by the very least nobody was alone after that.
class OwnRate {
 public:
  void add(double probed);
  double cycles() const;  // infinite without a probe

 private:
  static constexpr size_t kOneIn = 200;  // so many may be too short
  static constexpr size_t kKept = 512;
  std::vector<double> least_;  // of all, in order
  size_t probes_ = 0;
};

// Of a part's time, what may go into waiting for a moment alone, and the seconds that one sample waits: company may stay.
constexpr double kPatienceShare = 0.1, kSamplePatience = 0.01;

class Company {
 public:
  // Looks for the core's own rate a millisecond long.
  static Expected<Company> create(const Workbench& bench);

  // Cycles that a no-operation takes now; a few microseconds.
  Expected<double> probe();
  // Whether nobody else was there.
  bool alone(double probed) const { return probed <= most(); }

  // A sample with a probe on either side (`probed`: the larger of the two), again while it was in company, as long as patience
  // lasts. A thread that waits for memory keeps its half of what is split and issues nothing: that half must be asked for itself.
  // On what is no silicon nobody else is there, and the sample is taken at once.
  Expected<Sample> watch(const std::function<Expected<Sample>()>& sample);
  // Of a point that was watched, the samples that were taken alone, as drop_company does. A number of samples that was asked for
  // stays that number.
  void drop_from(Point& point) const;
  // Seconds that may go into waiting and repeating, in all and for one sample.
  void set_patience(double seconds, double of_a_sample = INFINITY) {
    patience_ = seconds;
    of_a_sample_ = of_a_sample;
  }

 private:
  explicit Company(const Workbench& bench) : bench_(&bench) {}

  double most() const { return 1.15 * own_.cycles(); }

  const Workbench* bench_;
  Workpiece nops_;
  OwnRate own_;
  double patience_ = 0, of_a_sample_ = INFINITY;
};

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_COMPANY_H_
