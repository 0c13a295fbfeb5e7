// SPDX-License-Identifier: Apache-2.0
// The worker's loop: it keeps nothing between two steps.
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include <potl/checks/detail/spot_check_link.hpp>
#include <potl/checks/spot_check.hpp>

#include "spot_check_body.hpp"

namespace potl::checks {
namespace {

/// Where weights come and the gradient goes: memory that the trusted side shares, or the worker's.
class tensor_room {
 public:
  tensor_room(gradient_source& source, spot_check_link& link, bool is_offered) {
    const std::uint64_t bytes = source.weights_bytes();
    std::uint64_t elements = 0;
    for (const spot_check_tensor& one : source.tensors()) elements += one.elements;
    if (is_offered) {
      auto memory = spot_check_memory::map(link.passed(), bytes, elements * sizeof(float));
      is_shared_ = memory.has_value();
      if (is_shared_) {
        weights = memory->weights();
        gradient = {reinterpret_cast<float*>(memory->gradient().data()), elements};
        link.share(std::move(memory).value());
        return;
      }
    }
    own_weights_.resize(bytes);
    own_gradient_.resize(elements);
    weights = own_weights_;
    gradient = own_gradient_;
  }

  bool is_shared() const noexcept { return is_shared_; }
  std::span<std::uint8_t> weights;
  std::span<float> gradient;

 private:
  std::vector<std::uint8_t> own_weights_;
  std::vector<float> own_gradient_;
  bool is_shared_ = false;
};

spot_check_served over(std::string reason, std::uint64_t steps = 0) {
  return {false, std::move(reason), steps};
}

}  // namespace

spot_check_served serve(spot_check_socket socket, bytes_view key, const gradient_maker& make,
                        double timeout) {
  spot_check_frame hello;
  std::vector<std::uint8_t> text;
  digest job;
  auto opened = spot_check_link::accepted(std::move(socket), key, timeout,
                                          transcript::max_job_bytes, hello, text, job);
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
  std::optional<tensor_room> tensors;
  if (source != nullptr) tensors.emplace(*source, link, is_memory(hello.body));
  const bool is_shared = tensors && tensors->is_shared();
  const status answered = link.send(spot_check_kind::ready, hello.step,
                                    is_shared ? memory_body() : reason_body(problem));
  if (!answered) return over(answered.why().message);

  spot_check_served out;
  while (true) {
    const auto asked = link.receive(
        [&](const spot_check_header& header) {
          const spot_check_frame& frame = header.frame;
          if (frame.kind == spot_check_kind::stop || !tensors) {
            return spot_check_expected{spot_check_kind::stop, frame.step, 0};
          }
          return spot_check_expected{spot_check_kind::step, frame.step, tensors->weights.size()};
        },
        tensors ? tensors->weights : std::span<std::uint8_t>{});
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
      body = loss_body(source->gradient(asked->step, tensors->weights, 0, tensors->gradient));
    } catch (const std::exception& thrown) {
      body = reason_body(thrown.what());
      failed = true;
    }
    const bytes_view bytes{reinterpret_cast<const std::uint8_t*>(tensors->gradient.data()),
                           tensors->gradient.size_bytes()};
    const std::span<const bytes_view> payload{&bytes, failed ? std::size_t{0} : 1};
    const status sent = link.send(spot_check_kind::report, asked->step, body, payload);
    if (!sent) return over(sent.why().message, out.steps);
    out.steps += failed ? 0 : 1;
  }
}

}  // namespace potl::checks
