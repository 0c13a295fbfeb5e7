// SPDX-License-Identifier: Apache-2.0
// Any bytes: no crash. A job that is accepted answers every question about its steps, however many
// it claims.
#include <cstdlib>
#include <string>

#include <potl/transcript/job.hpp>

#include "fuzz.hpp"

POTL_FUZZ_TARGET(job_fuzz) {
  const potl::result<potl::transcript::job> got =
      potl::transcript::parse_job(potl::bytes_view(data, size));
  if (!got) return 0;
  if (got->text != std::string(data, data + size)) std::abort();
  for (const std::uint64_t step : {std::uint64_t{1}, got->steps / 2 + 1, got->steps}) {
    if (got->epoch_of(step) >= got->epochs) std::abort();
    if (!got->rates.empty() && got->rates_at(step) == nullptr) std::abort();
    if (got->data_count <= 1000 && got->sample_ids(step).empty()) std::abort();
  }
  if (!got->is_checkpoint(0) || !got->is_checkpoint(got->steps)) std::abort();
  if (got->rates_at(got->steps + 1) != nullptr || got->rates_at(0) != nullptr) std::abort();
  return 0;
}
