// SPDX-License-Identifier: Apache-2.0
// Types that the bindings of transcripts and of checks share.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <potl/transcript/detail/batch_order.hpp>
#include <potl/transcript/job.hpp>
#include <potl/transcript/operator_trace.hpp>

#include "bindings.hpp"

namespace potl::python {

/// potl._core.Job: a job, and the batches of the epoch that was asked for last.
struct job_handle {
  struct cached_order {
    explicit cached_order(const transcript::job& agreed) : order(agreed) {}
    std::mutex mutex;
    transcript::batch_order order;
  };

  explicit job_handle(transcript::job what)
      : agreed(std::make_shared<const transcript::job>(std::move(what))),
        order(std::make_shared<cached_order>(*agreed)) {}

  std::shared_ptr<const transcript::job> agreed;
  std::shared_ptr<cached_order> order;
};

/// Of names, each with the digest of the results in hexadecimal digits.
inline std::vector<transcript::traced_operator> operators_of(const py::iterable& rows) {
  std::vector<transcript::traced_operator> out;
  for (py::handle row : rows) {
    auto [name, content] = py::cast<std::pair<std::string, std::string>>(row);
    out.push_back({std::move(name), digest::from_hex(content).value()});
  }
  return out;
}

/// Parts of bind_transcript.
void bind_repetition(py::module_& module);
void bind_work(py::module_& module);

}  // namespace potl::python
