// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <potl/core/error.hpp>
#include <potl/numeric/detail/isa.hpp>

namespace potl::numeric {
namespace {

constexpr std::array levels{isa::portable, isa::neon, isa::avx2, isa::avx512, isa::vnni, isa::amx};
constexpr int unset = -1;
std::atomic<int> active{unset};

#if defined(__x86_64__)
// Whether the processor has tiles, and the operating system can keep them for a process.
bool has_tiles() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned saves_states = 1U << 27, tiles = 1U << 24, of_int8 = 1U << 25;
  constexpr unsigned states = 3U << 17;  // of tiles: their shapes and their contents
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & saves_states) == 0) return false;
  unsigned saved = 0, upper = 0;
  __asm__ volatile("xgetbv" : "=a"(saved), "=d"(upper) : "c"(0));
  if ((saved & states) != states) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  return (d & tiles) != 0 && (d & of_int8) != 0;
}
#endif

isa ask_processor() noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();
  // The builtin looks at what the operating system saves, too.
  if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))) return isa::portable;
  if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")))
    return isa::avx2;
  if (!(__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512ifma")))
    return isa::avx512;
  return has_tiles() ? isa::amx : isa::vnni;
#elif defined(__aarch64__)
  return isa::neon;
#else
  return isa::portable;
#endif
}

// The next level below that this processor has, or this one.
isa capped_by_processor(isa level) noexcept {
  if (level == isa::neon && processor_isa() != isa::neon) return isa::portable;
  return std::min(level, processor_isa());
}

isa from_environment() {
  const char* wanted = std::getenv("POTL_ISA");
  if (wanted == nullptr || *wanted == '\0') return processor_isa();
  const auto level = isa_from(wanted);
  if (!level)
    throw exception({errc::usage, std::string("POTL_ISA is \"") + wanted + "\"",
                     "set it to portable, neon, avx2, avx512, vnni or amx, or unset it"});
  return capped_by_processor(*level);
}

}  // namespace

const char* to_string(isa level) noexcept {
  switch (level) {
    case isa::portable: return "portable";
    case isa::neon: return "neon";
    case isa::avx2: return "avx2";
    case isa::avx512: return "avx512";
    case isa::vnni: return "vnni";
    case isa::amx: return "amx";
  }
  return "unknown";
}

std::optional<isa> isa_from(std::string_view name) noexcept {
  for (const isa level : levels)
    if (name == to_string(level)) return level;
  return std::nullopt;
}

isa processor_isa() noexcept {
  static const isa level = ask_processor();
  return level;
}

isa active_isa() {
  const int level = active.load(std::memory_order_relaxed);
  if (level != unset) return static_cast<isa>(level);
  const isa first = from_environment();
  active.store(static_cast<int>(first), std::memory_order_relaxed);
  return first;
}

isa cap_isa(isa level) {
  const isa capped = capped_by_processor(level);
  active.store(static_cast<int>(capped), std::memory_order_relaxed);
  return capped;
}

std::string processor_name() {
#if defined(__x86_64__)
  std::array<unsigned, 12> words{};
  unsigned highest = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0x80000000U, &highest, &b, &c, &d) == 0 || highest < 0x80000004U)
    return "unknown";
  for (unsigned i = 0; i < 3; ++i)
    __get_cpuid(0x80000002U + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                &words[4 * i + 3]);
  std::array<char, 49> text{};
  std::memcpy(text.data(), words.data(), 48);
  std::string name(text.data());
  name.erase(0, name.find_first_not_of(' '));
  return name.empty() ? "unknown" : name;
#else
  return "unknown";
#endif
}

}  // namespace potl::numeric
