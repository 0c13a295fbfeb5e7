// SPDX-License-Identifier: Apache-2.0
// The extra task in C++, without torch: what is uploaded, and a judgement of a model's answers.
//
// The models here are stand-ins: one knows what it was trained on by heart, one knows nothing.
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include <potl/checks/extra_task.hpp>
#include <potl/checks/extra_task_samples.hpp>
#include <potl/core/error.hpp>
#include <potl/crypto/challenge.hpp>

namespace checks = potl::checks;

namespace {

constexpr std::uint64_t classes = 10, training_samples = 50'000;
constexpr std::size_t image_size = std::size_t{32} * 32 * 3;

using image = std::vector<std::uint8_t>;

std::vector<image> images_of(const checks::extra_samples& secret, checks::extra_set set) {
  std::vector<image> out(secret.count(set), image(image_size));
  for (std::uint64_t i = 0; i < out.size(); ++i) secret.fill(set, i, 0, std::span(out[i]));
  return out;
}

// The answers of a model to all extra samples, then to all controls.
template <class Model>
checks::extra_result judged(const checks::extra_samples& secret, Model model) {
  std::vector<double> extra, control;
  for (const image& one : images_of(secret, checks::extra_set::extra)) extra.push_back(model(one));
  for (const image& one : images_of(secret, checks::extra_set::control)) {
    control.push_back(model(one));
  }
  // Earlier submissions and reference curves would follow.
  return checks::judge_extra_task({}, secret.count(checks::extra_set::extra), classes,
                                  {extra, control}, {}, {})
      .value();
}

void print(const char* model, const checks::extra_result& result) {
  const char* verdict = result.result == potl::outcome::pass     ? "accepted"
                        : result.result == potl::outcome::reject ? "rejected"
                                                                 : "inconclusive";
  std::printf("%s: %llu hits of %llu needed, p = %.2g: %s\n", model,
              static_cast<unsigned long long>(result.hits),
              static_cast<unsigned long long>(result.needed), result.p_value, verdict);
}

}  // namespace

int main() {
  try {
    const checks::extra_plan plan = checks::plan_extra_task(training_samples, classes, {}).value();
    const potl::digest key = potl::fresh_nonce();  // 32 secret bytes: keep them, for one model
    const checks::extra_samples secret =
        checks::extra_samples::make(key.bytes, checks::extra_image{32, 32, 3}, plan.samples,
                                    classes, {})
            .value();

    // Upload: real samples and these, in the secret order secret.order(training_samples).
    std::map<image, std::int64_t> known;
    for (const checks::extra_upload& one : secret.uploads()) {
      image pixels(image_size);
      secret.fill(checks::extra_set::extra, one.index, one.copy, std::span(pixels));
      known[pixels] = one.label;
    }
    std::printf("%zu extra samples in %zu uploaded ones\n", known.size(),
                secret.order(training_samples).size());

    print("trained until it converged", judged(secret, [&](const image& one) {
            const auto found = known.find(one);
            return found == known.end() ? 0.0 : static_cast<double>(found->second);
          }));
    print("one class for everything", judged(secret, [](const image&) { return 3.0; }));
  } catch (const potl::exception& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 1;
  }
}
