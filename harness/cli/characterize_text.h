// The text of `characterize`: a sheet that fits a screen, and tables of everything.
#ifndef SKIDPROOF_HARNESS_CLI_CHARACTERIZE_TEXT_H_
#define SKIDPROOF_HARNESS_CLI_CHARACTERIZE_TEXT_H_

#include <vector>

#include "base/expected.h"
#include "harness/characterize/characterize.h"
#include "harness/cli/text.h"

namespace skidproof::cli {

// What was inferred, then latency and bandwidth by level, then single figures.
void print_sheet(const Text& text, const Characterization& measured);
// One table for each name: its parameters, then a column for each unit that it was measured in.
void print_everything(const Text& text, const Characterization& measured);
// What was counted beside time, how much of it agrees, and which figures contradict it. Nothing without counts.
void print_counts(const Text& text, const Characterization& measured);
// What disturbed it, and what a quota of CPU time did to it.
void print_noise(const Text& text, const Characterization& measured);
// Problems of one kind as one: the first and the last of them, and how many.
std::vector<Error> grouped(const std::vector<Error>& problems);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_CHARACTERIZE_TEXT_H_
