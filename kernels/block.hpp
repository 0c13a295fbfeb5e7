// SPDX-License-Identifier: Apache-2.0
// What a kernel's body knows of its block. A body is a template over Block; on a device that is
// device_block, in the tests a block that is simulated thread by thread
// (tests/unit/simulated_block.hpp), which reports races. So every body runs where there is no GPU.
//
// A body works in phases: block.each(f) calls f(thread) for each thread of the block, and ends with
// a barrier; block.open(f) does not, and belongs to the phase that the next one ends. What a thread
// keeps from phase to phase is a Block::own<T>, what threads share is a Block::shared<T, Count>
// that the kernel declares.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#define POTL_BODY __host__ __device__ __forceinline__
#define POTL_SELDOM __host__ __device__ __noinline__
#define POTL_UNROLL _Pragma("unroll")
#define POTL_ROLLED _Pragma("unroll 1")
#else
#define POTL_BODY inline
#define POTL_SELDOM inline
#define POTL_UNROLL
#define POTL_ROLLED
#endif

namespace potl::cuda {

/// Neighbours in memory that are read and written at once.
template <class T, unsigned Count>
struct alignas(sizeof(T) * Count) pack {
  T at[Count];
};

/// What a thread holds of a product of bytes: of A 16 of them, of B 8, and 4 sums.
struct byte_product {
  const std::uint32_t (&a)[4];
  const std::uint32_t (&b)[2];
  std::int32_t (&sums)[4];
};

/// What a thread holds of a product of 16 rows and 64 columns of bytes: 16 bytes of A, and 32 sums.
struct row_product {
  const std::uint32_t (&a)[4];
  std::int32_t (&sums)[32];
};

/// Of a product of doubles: 2 of A, one of B, and 4 sums.
struct double_product {
  const double (&a)[2];
  const double& b;
  double (&sums)[4];
};

#if defined(__CUDACC__)
/// `Threads` threads of a device, in one dimension.
template <unsigned Threads>
class device_block {
 public:
  static constexpr unsigned threads = Threads;

  /// Memory of the block; read() and write() are the only ways to it.
  template <class T, unsigned Count>
  struct alignas(16) shared {
    T at[Count];
  };

  /// A T for each thread.
  template <class T>
  class own {
   public:
    __device__ __forceinline__ T& of(unsigned) { return value_; }

   private:
    T value_;
  };

  __device__ __forceinline__ std::uint64_t index() const { return blockIdx.x; }

  template <class Phase>
  __device__ __forceinline__ void each(Phase&& phase) {
    phase(threadIdx.x);
    __syncthreads();
  }

  template <class Phase>
  __device__ __forceinline__ void open(Phase&& phase) {
    phase(threadIdx.x);
  }

  /// sums += a b for each warp, exactly: 16 rows and 8 columns of 32 bytes, in the layout of PTX's
  /// mma.m16n8k32. `pick` says of what a thread keeps which registers hold its part (byte_product).
  template <bool SignedA, bool SignedB, class T, class Pick>
  __device__ __forceinline__ void multiply_bytes(own<T>& state, const Pick& pick) {
    const byte_product p = pick(state.of(threadIdx.x));
#define POTL_MULTIPLY_BYTES(A, B)                                                     \
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32." A "." B                       \
               ".s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
               : "+r"(p.sums[0]), "+r"(p.sums[1]), "+r"(p.sums[2]), "+r"(p.sums[3])   \
               : "r"(p.a[0]), "r"(p.a[1]), "r"(p.a[2]), "r"(p.a[3]), "r"(p.b[0]), "r"(p.b[1]))
    if constexpr (SignedA && SignedB) {
      POTL_MULTIPLY_BYTES("s8", "s8");
    } else if constexpr (SignedA) {
      POTL_MULTIPLY_BYTES("s8", "u8");
    } else if constexpr (SignedB) {
      POTL_MULTIPLY_BYTES("u8", "s8");
    } else {
      POTL_MULTIPLY_BYTES("u8", "u8");
    }
#undef POTL_MULTIPLY_BYTES
  }

  /// The same for each warp of a warpgroup, 16 rows and 64 columns, with B in shared memory from
  /// `place` on: [8 columns][16 bytes] for each 16 k of each 8 columns, k first. Begun by
  /// begin_rows(); until finish_rows() nobody touches what takes part.
  template <bool SignedA, bool SignedB, class T, class Pick, unsigned Count>
  __device__ __forceinline__ void multiply_rows(own<T>& state, const Pick& pick,
                                                const shared<std::uint32_t, Count>& b,
                                                unsigned place) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    const row_product p = pick(state.of(threadIdx.x));
    // In units of 16 bytes: where it begins, from one k half to the next, and from 8 columns on.
    const std::uint64_t where = (__cvta_generic_to_shared(b.at + place) & 0x3ffff) >> 4 |
                                std::uint64_t{128 >> 4} << 16 | std::uint64_t{256 >> 4} << 32;
#define POTL_SUMS(I) "+r"(p.sums[I]), "+r"(p.sums[I + 1]), "+r"(p.sums[I + 2]), "+r"(p.sums[I + 3])
#define POTL_MULTIPLY_ROWS(A, B)                                                             \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k32.s32." A "." B                         \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "    \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, " \
               "%31}, {%32, %33, %34, %35}, %36, 1;"                                         \
               : POTL_SUMS(0), POTL_SUMS(4), POTL_SUMS(8), POTL_SUMS(12), POTL_SUMS(16),     \
                 POTL_SUMS(20), POTL_SUMS(24), POTL_SUMS(28)                                 \
               : "r"(p.a[0]), "r"(p.a[1]), "r"(p.a[2]), "r"(p.a[3]), "l"(where))
    if constexpr (SignedA && SignedB) {
      POTL_MULTIPLY_ROWS("s8", "s8");
    } else if constexpr (SignedA) {
      POTL_MULTIPLY_ROWS("s8", "u8");
    } else if constexpr (SignedB) {
      POTL_MULTIPLY_ROWS("u8", "s8");
    } else {
      POTL_MULTIPLY_ROWS("u8", "u8");
    }
#undef POTL_MULTIPLY_ROWS
#undef POTL_SUMS
#endif
  }
  __device__ __forceinline__ void begin_rows() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
  }
  __device__ __forceinline__ void finish_rows() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
#endif
  }

  /// Of stages of shared memory, which one thread fills and the block's threads read.
  template <unsigned Stages>
  struct alignas(8) stage_marks {
    std::uint64_t full[Stages], left[Stages];
  };

  /// A loop over `count` stages' worth of memory, on a body that has `bringers`. One of those calls
  /// bring(i, stage), which brings `Bytes` with bring_words(); the block's threads run take(stages)
  /// meanwhile, which waits for the next stage by stages.next() and gives it back by
  /// stages.leave(). Groups of four warps go on by themselves: a phase of theirs ends with no
  /// barrier, so that take() has no each().
  template <unsigned Bytes, unsigned Stages, class Bring, class Take>
  __device__ __forceinline__ void pipelined(stage_marks<Stages>& marks, std::int64_t count,
                                            const Bring& bring, const Take& take) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    if (threadIdx.x == 0) {
      for (unsigned i = 0; i < Stages; ++i) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(address(marks.full[i])));
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(address(marks.left[i])),
                     "r"(Threads));
      }
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    // Sums of a warpgroup take more registers than all warps have evenly.
    if (threadIdx.x >= Threads) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
      if (threadIdx.x == Threads) {
        stage_turn<Stages> turn;
        POTL_ROLLED
        for (std::int64_t i = 0; i < count; ++i) {
          // The first time, nobody has been there.
          wait_for(marks.left[turn.stage], turn.round ^ 1);
          asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(
                           address(marks.full[turn.stage])),
                       "r"(Bytes)
                       : "memory");
          bring(i, turn.stage);
          turn.go_on();
        }
      }
    } else {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
      arriving<Stages> stages{marks, {}};
      take(stages);
    }
#else
    __trap();
#endif
  }

  /// For pipelined(): copies words to a stage, from and to multiples of 16 bytes.
  template <unsigned Stages, unsigned Count>
  __device__ __forceinline__ static void bring_words(stage_marks<Stages>& marks, unsigned stage,
                                                     shared<std::uint32_t, Count>& to,
                                                     unsigned place, const std::uint32_t* from,
                                                     unsigned words) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(address(to.at[place])),
        "l"(from), "r"(words * 4), "r"(address(marks.full[stage]))
        : "memory");
#endif
  }

  /// sums += a b for each warp: 16 rows and 8 columns of 4 doubles, in the layout of mma.m16n8k4:
  /// the four products are added with one rounding each at most, in an order that nobody promises.
  /// That instruction came with sm_90, where two for 8 rows are slower.
  template <class T, class Pick>
  __device__ __forceinline__ void multiply_doubles(own<T>& state, const Pick& pick) {
    const double_product p = pick(state.of(threadIdx.x));
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+d"(p.sums[0]), "+d"(p.sums[1]), "+d"(p.sums[2]), "+d"(p.sums[3])
        : "d"(p.a[0]), "d"(p.a[1]), "d"(p.b));
#else
    POTL_UNROLL
    for (unsigned half = 0; half < 2; ++half) {
      asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                   : "+d"(p.sums[2 * half]), "+d"(p.sums[2 * half + 1])
                   : "d"(p.a[half]), "d"(p.b));
    }
#endif
  }

  /// Neighbours from a multiple of their number on.
  template <unsigned Width, class T, unsigned Count>
  __device__ __forceinline__ static pack<T, Width> read(const shared<T, Count>& from,
                                                        unsigned first, unsigned) {
    return *reinterpret_cast<const pack<T, Width>*>(from.at + first);
  }
  template <class T, unsigned Count>
  __device__ __forceinline__ static void write(shared<T, Count>& to, unsigned place, T value,
                                               unsigned) {
    to.at[place] = value;
  }

  /// Begins to copy a number from memory, or +0 where it is not there. It has arrived when the
  /// thread has waited for it, for other threads after the barrier that follows.
  template <unsigned Count>
  __device__ __forceinline__ static void copy(shared<float, Count>& to, unsigned place,
                                              const float* from, bool is_there, unsigned) {
    const auto at = static_cast<unsigned>(__cvta_generic_to_shared(to.at + place));
    // Not a barrier for other accesses to memory: nobody reads the place before the wait.
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from),
                 "r"(is_there ? 4 : 0));
  }
  /// The same for four numbers that are there, which lie at a multiple of 16 bytes on both sides.
  template <class T, unsigned Count>
  __device__ __forceinline__ static void copy_four(shared<T, Count>& to, unsigned place,
                                                   const T* from, unsigned) {
    static_assert(sizeof(T) == 4);
    const auto at = static_cast<unsigned>(__cvta_generic_to_shared(to.at + place));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from));
  }
  /// What the thread has begun to copy since the last time is one group.
  __device__ __forceinline__ static void end_group(unsigned) {
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  /// Waits for all groups of the thread but the last `Later` ones.
  template <unsigned Later>
  __device__ __forceinline__ static void wait(unsigned) {
    asm volatile("cp.async.wait_group %0;" ::"n"(Later) : "memory");
  }

 private:
  template <class T>
  __device__ __forceinline__ static unsigned address(const T& of) {
    return static_cast<unsigned>(__cvta_generic_to_shared(&of));
  }
  /// Until the mark has been passed so often that this `round` (mod 2) is over.
  __device__ __forceinline__ static void wait_for(const std::uint64_t& mark, unsigned round) {
    asm volatile(
        "{.reg .pred done; again: mbarrier.try_wait.parity.shared.b64 done, [%0], %1; "
        "@!done bra again; }" ::"r"(address(mark)),
        "r"(round)
        : "memory");
  }
  template <unsigned Stages>
  struct stage_turn {
    unsigned stage = 0, round = 0;
    __device__ __forceinline__ void go_on() {
      if (++stage == Stages) {
        stage = 0;
        round ^= 1;
      }
    }
  };
  template <unsigned Stages>
  struct arriving {
    stage_marks<Stages>& marks;
    stage_turn<Stages> turn;

    __device__ __forceinline__ unsigned next() {
      const unsigned stage = turn.stage;
      wait_for(marks.full[stage], turn.round);
      turn.go_on();
      return stage;
    }
    __device__ __forceinline__ void leave(unsigned stage) {
      asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address(marks.left[stage]))
                   : "memory");
    }
  };
};
#endif

/// a b + c, rounded once.
POTL_BODY float fused(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

POTL_BODY float canonical_nan() {
#if defined(__CUDA_ARCH__)
  return __int_as_float(0x7fc00000);
#else
  return std::bit_cast<float>(0x7fc00000U);
#endif
}

/// The value, of which the compiler does not know that it stays the same: else it keeps all that
/// follows from it in registers across a loop.
POTL_BODY std::int64_t forgotten(std::int64_t value) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+l"(value));
#endif
  return value;
}

/// Keeps what follows from it behind what stands before: else the compiler does all of many such
/// pieces at once, which takes too many registers.
POTL_BODY void in_turn([[maybe_unused]] std::int32_t& value) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(value));
#endif
}

/// Four bytes as a number, the first one highest.
POTL_BODY std::uint32_t swapped(std::uint32_t word) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(word, 0, 0x0123);
#else
  return __builtin_bswap32(word);
#endif
}

/// Byte `which` of each of four words, the first one lowest.
POTL_BODY std::uint32_t bytes_of(const std::uint32_t (&words)[4], unsigned which) {
#if defined(__CUDA_ARCH__)
  const unsigned of_two = which | (which + 4) << 4;
  return __byte_perm(__byte_perm(words[0], words[1], of_two),
                     __byte_perm(words[2], words[3], of_two), 0x5410);
#else
  std::uint32_t out = 0;
  for (unsigned i = 0; i < 4; ++i) out |= (words[i] >> (8 * which) & 0xffU) << (8 * i);
  return out;
#endif
}

/// `to` is `value` at least. Any number of threads at once: the order does not show.
POTL_BODY void raise(std::uint32_t& to, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
  atomicMax(&to, value);
#else
  if (to < value) to = value;
#endif
}
/// Adds modulo 2^64, likewise; what was there before.
POTL_BODY std::uint64_t add_together(std::uint64_t& to, std::uint64_t value) {
#if defined(__CUDA_ARCH__)
  return atomicAdd(reinterpret_cast<unsigned long long*>(&to), value);
#else
  const std::uint64_t before = to;
  to += value;
  return before;
#endif
}

/// item(i) for the share of block.index(), one of `blocks`, in `count` items.
template <class Block, class Item>
POTL_BODY void for_items(Block& block, std::uint64_t blocks, std::uint64_t count,
                         const Item& item) {
  block.each([&](unsigned thread) {
    const std::uint64_t step = blocks * Block::threads;
    for (std::uint64_t i = block.index() * Block::threads + thread; i < count; i += step) item(i);
  });
}

/// The one of `count` that has `place`: the last whose `first` is there or before. What is empty
/// begins where the next one does.
template <class Owner>
POTL_BODY std::uint64_t owner_of(const Owner* owners, std::uint64_t count, std::uint64_t place) {
  std::uint64_t low = 0, high = count;
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (owners[middle].first <= place ? low : high) = middle;
  }
  return low;
}

}  // namespace potl::cuda
