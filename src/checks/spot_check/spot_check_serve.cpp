// SPDX-License-Identifier: Apache-2.0
// The worker's loop: it keeps nothing between two steps.
#include <exception>

#include <potl/checks/detail/spot_check_link.hpp>
#include <potl/checks/spot_check.hpp>

#include "spot_check_body.hpp"

namespace potl::checks {
namespace {

// Of a job's text.
constexpr std::uint64_t most_job_bytes = 16 << 20;

spot_check_served over(std::string reason, std::uint64_t steps = 0) {
  return {false, std::move(reason), steps};
}

}  // namespace

spot_check_served serve(spot_check_socket socket, bytes_view key, const gradient_maker& make,
                        double timeout) {
  spot_check_frame hello;
  std::vector<std::uint8_t> text;
  digest job;
  auto opened =
      spot_check_link::accepted(std::move(socket), key, timeout, most_job_bytes, hello, text, job);
  if (!opened) return over(opened.why().message);
  spot_check_link link = std::move(opened).value();
  if (sha256_of(bytes_view(text)) != job) return over("the job is another than its frames name");

  gradient_source* source = nullptr;
  std::string problem;
  try {
    source = &make(std::string(text.begin(), text.end()));
  } catch (const std::exception& thrown) {
    problem = thrown.what();
  }
  const status answered = link.send(spot_check_kind::ready, hello.step, reason_body(problem));
  if (!answered) return over(answered.why().message);

  std::vector<std::uint8_t> weights(source == nullptr ? 0 : source->weights_bytes());
  std::uint64_t elements = 0;
  if (source != nullptr) {
    for (const spot_check_tensor& one : source->tensors()) elements += one.elements;
  }
  std::vector<float> gradient(elements);
  const bytes_view bytes{reinterpret_cast<const std::uint8_t*>(gradient.data()),
                         gradient.size() * sizeof(float)};
  spot_check_served out;
  while (true) {
    const auto asked = link.receive(
        [&](const spot_check_header& header) {
          const spot_check_frame& frame = header.frame;
          if (frame.kind == spot_check_kind::stop || source == nullptr) {
            return spot_check_expected{spot_check_kind::stop, frame.step, 0};
          }
          return spot_check_expected{spot_check_kind::step, frame.step, weights.size()};
        },
        weights);
    if (!asked) return over(asked.why().message, out.steps);
    if (asked->kind == spot_check_kind::stop) {
      const auto reason = read_reason(asked->body);
      out.stopped = !is_pause(asked->body);
      out.reason = !out.stopped ? "the trusted side pauses"
                   : reason     ? *reason
                                : std::string("the trusted side gave no readable reason");
      static_cast<void>(link.send(spot_check_kind::stopped, asked->step));
      return out;
    }
    std::string body;
    bool failed = false;
    try {
      if (asked->step < 1 || asked->step > source->steps()) {
        throw exception({errc::usage, "the job has no such step", ""});
      }
      body = loss_body(source->gradient(asked->step, weights, 0, gradient));
    } catch (const std::exception& thrown) {
      body = reason_body(thrown.what());
      failed = true;
    }
    const std::span<const bytes_view> payload{&bytes, failed ? std::size_t{0} : 1};
    const status sent = link.send(spot_check_kind::report, asked->step, body, payload);
    if (!sent) return over(sent.why().message, out.steps);
    out.steps += failed ? 0 : 1;
  }
}

}  // namespace potl::checks
