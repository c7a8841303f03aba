// A trace as a Markdown page (docs/traceability.md) and as JSON. Both depend on what ran where and nothing
// else: no times, seeds or counts of parameters.
#ifndef SKIDPROOF_HARNESS_CLI_TRACEABILITY_PAGE_H_
#define SKIDPROOF_HARNESS_CLI_TRACEABILITY_PAGE_H_

#include <string>
#include <string_view>
#include <vector>

#include "harness/cli/tracing.h"
#include "results/row.h"

namespace skidproof::cli {

std::string page_of(const Trace& trace);
results::Json json_of(const Trace& trace);

// The beginning of a sentence: whole when it has at most `characters`, else cut behind a word, with "…".
std::string shortened(std::string_view text, size_t characters);
// "all 4", "none", "a, b", "all but c": some of these names, as few words as possible.
std::string some_of(const std::vector<std::string>& some, const std::vector<std::string>& all);
// "line 7 reads `a`, and should read `b`"; empty when both pages are the same.
std::string first_difference(std::string_view present, std::string_view expected);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_TRACEABILITY_PAGE_H_
