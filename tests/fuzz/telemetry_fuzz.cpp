// SPDX-License-Identifier: Apache-2.0
// telemetry.log is the prover's: any bytes are parsed or refused, and judged without trouble.
#include <potl/checks/telemetry.hpp>

#include "fuzz.hpp"

POTL_FUZZ_TARGET(telemetry_fuzz) {
  potl::transcript::step_record record;
  record.step = 1;
  potl::checks::run_view run;
  run.steps = {&record, 1};
  run.telemetry = {data, size};
  potl::checks::telemetry_options options;
  potl::checks::judge_telemetry(run, options);
  options.mode = "apex";
  potl::checks::judge_telemetry(run, options);
  return 0;
}
