// Is another thread of this core at work? It takes half of what the core splits (reorder buffer, load and store queues) and
// issue slots, and no counter of ours says so: under a hypervisor not even that there is one. What shows it is the rate of
// no-operations, which nothing else lowers: on a Raptor Cove server 5.6 in a cycle alone, 2 to 4 in company.
#ifndef SKIDPROOF_HARNESS_CHARACTERIZE_COMPANY_H_
#define SKIDPROOF_HARNESS_CHARACTERIZE_COMPANY_H_

#include <functional>
#include <memory>

#include "base/expected.h"
#include "harness/characterize/workbench.h"

namespace skidproof {

class Company {
 public:
  // Looks for the core's own rate a millisecond long.
  static Expected<Company> create(const Workbench& bench);

  // Cycles that a no-operation takes now; a few microseconds.
  Expected<double> probe();
  // Whether nobody else was there, by the least that any probe gave up to now.
  bool alone(double probed) const { return probed <= kMost * least_; }

  struct Watched {
    Sample sample;
    double probed = 0;  // the larger of the probes before and behind it
  };
  // A sample with a probe on either side, again while it was in company, as long as patience lasts.
  Expected<Watched> watch(const std::function<Expected<Sample>()>& sample);
  // Seconds that may go into waiting and repeating, in all.
  void set_patience(double seconds) { patience_ = seconds; }

 private:
  explicit Company(const Workbench& bench) : bench_(&bench) {}

  static constexpr double kMost = 1.15;

  const Workbench* bench_;
  Workpiece nops_;
  double least_ = 0;
  double patience_ = 0;
};

}  // namespace skidproof

#endif  // SKIDPROOF_HARNESS_CHARACTERIZE_COMPANY_H_
