// The name of JSON (results/json.h) for headers that only pass it on.
#ifndef SKIDPROOF_RESULTS_JSON_FWD_H_
#define SKIDPROOF_RESULTS_JSON_FWD_H_

#include <nlohmann/json_fwd.hpp>

namespace skidproof::results {

using Json = nlohmann::ordered_json;

}  // namespace skidproof::results

#endif  // SKIDPROOF_RESULTS_JSON_FWD_H_
