// SPDX-License-Identifier: Apache-2.0
// A block of a GPU, simulated: the threads of a phase run one after the other, in any order. Finds
// words of shared memory that two threads touch, one of them writing, with no barrier between, and
// words that are read before anybody has written them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "block.hpp"

namespace potl::test {

/// Reads and writes are static, as they are on a device: the phase is that of the block that runs.
inline std::uint64_t simulated_phase = 0;
/// What each thread has begun to copy, in groups; the last one is open.
using copy_groups = std::deque<std::vector<std::function<void()>>>;
inline std::vector<copy_groups> simulated_copies;
/// Brought by bring_words() to a stage.
inline std::uint64_t simulated_bytes = 0;

template <unsigned Threads>
class simulated_block {
 public:
  static constexpr unsigned threads = Threads;

  template <class T, unsigned Count>
  class shared {
   public:
    T read(unsigned place, unsigned thread) const {
      history& word = words_.at(place);
      if (word.is_on_its_way) throw std::logic_error("a copy is read before it has arrived");
      if (!word.is_written) throw std::logic_error("a word is read before it is written");
      if (word.written_in == simulated_phase && word.writer != thread) race(place);
      if (word.read_in != simulated_phase) {
        word.read_in = simulated_phase;
        word.reader = thread;
        word.has_more_readers = false;
      }
      word.has_more_readers = word.has_more_readers || word.reader != thread;
      return values_[place];
    }
    void write(unsigned place, T value, unsigned thread) {
      history& word = words_.at(place);
      if (word.is_on_its_way) race(place);
      const bool is_read =
          word.read_in == simulated_phase && (word.reader != thread || word.has_more_readers);
      const bool is_changed = word.written_in == simulated_phase && word.writer != thread;
      if (is_read || is_changed) race(place);
      word.is_written = true;
      word.written_in = simulated_phase;
      word.writer = thread;
      values_[place] = value;
    }
    /// The word changes when the copy begins, and again when the thread has waited for it.
    void begin_copy(unsigned place, T value, unsigned thread) {
      write(place, value, thread);
      words_[place].is_on_its_way = true;
      simulated_copies.at(thread).back().push_back([this, place, value, thread] {
        words_[place].is_on_its_way = false;
        write(place, value, thread);
      });
    }

   private:
    struct history {
      std::uint64_t written_in = 0, read_in = 0;
      unsigned writer = 0, reader = 0;
      bool has_more_readers = false, is_written = false, is_on_its_way = false;
    };
    [[noreturn]] static void race(unsigned place) {
      throw std::logic_error("two threads race for word " + std::to_string(place));
    }
    std::array<T, Count> values_{};
    mutable std::array<history, Count> words_{};
  };

  template <class T>
  class own {
   public:
    own() : values_(std::make_unique<std::array<T, Threads>>()) {
      // What no thread has set is no zero on a device either.
      std::memset(static_cast<void*>(values_->data()), 0xa5, sizeof(*values_));
    }
    T& of(unsigned thread) { return values_->at(thread); }

   private:
    std::unique_ptr<std::array<T, Threads>> values_;
  };

  /// `order` draws in which order the threads run; 0: ascending.
  explicit simulated_block(std::uint64_t index, std::uint64_t order = 0)
      : index_(index), turns_(Threads) {
    simulated_copies.assign(Threads, copy_groups(1));
    std::iota(turns_.begin(), turns_.end(), 0U);
    for (unsigned i = Threads; order != 0 && i > 1; --i) {
      order = order * 6364136223846793005U + 1442695040888963407U;
      std::swap(turns_[i - 1], turns_[static_cast<std::size_t>((order >> 33) % i)]);
    }
  }

  std::uint64_t index() const { return index_; }

  template <class Phase>
  void each(Phase&& phase) {
    open(phase);
    is_at_barrier_ = true;
  }
  template <class Phase>
  void open(Phase&& phase) {
    if (is_at_barrier_) ++simulated_phase;
    is_at_barrier_ = false;
    for (const unsigned thread : turns_) phase(thread);
  }

  /// As PTX's mma.m16n8k32 has it: thread 4 g + t of a warp holds of A rows g and g + 8, of B
  /// column g, of both bytes 4 t to 4 t + 3 and 16 more of that on, and of the sums columns 2 t and
  /// 2 t + 1.
  template <bool SignedA, bool SignedB, class T, class Pick>
  void multiply_bytes(own<T>& state, const Pick& pick) {
    static_assert(Threads % 32 == 0);
    const auto byte = [](bool is_signed, std::uint32_t word, unsigned at) -> std::int32_t {
      const auto raw = static_cast<std::uint8_t>(word >> (8 * at));
      return is_signed ? static_cast<std::int8_t>(raw) : raw;
    };
    for (unsigned warp = 0; warp < Threads; warp += 32) {
      std::int32_t a[16][32], b[32][8];
      for (unsigned lane = 0; lane < 32; ++lane) {
        const cuda::byte_product mine = pick(state.of(warp + lane));
        const unsigned g = lane / 4, t = lane % 4;
        for (unsigned i = 0; i < 4; ++i) {
          for (unsigned part = 0; part < 2; ++part) {
            const unsigned k = part * 16 + 4 * t + i;
            a[g][k] = byte(SignedA, mine.a[2 * part], i);
            a[g + 8][k] = byte(SignedA, mine.a[2 * part + 1], i);
            b[k][g] = byte(SignedB, mine.b[part], i);
          }
        }
      }
      for (unsigned lane = 0; lane < 32; ++lane) {
        const cuda::byte_product mine = pick(state.of(warp + lane));
        for (unsigned i = 0; i < 4; ++i) {
          const unsigned row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
          std::int64_t sum = mine.sums[i];
          for (unsigned k = 0; k < 32; ++k) sum += a[row][k] * b[k][column];
          if (sum != static_cast<std::int32_t>(sum)) throw std::logic_error("a sum overflows");
          mine.sums[i] = static_cast<std::int32_t>(sum);
        }
      }
    }
  }

  /// As wgmma.m64n64k32 has it: rows and sums of each warp as above, eight columns after the other.
  /// All at finish_rows(), so that what has changed until then shows.
  template <bool SignedA, bool SignedB, class T, class Pick, unsigned Count>
  void multiply_rows(own<T>& state, const Pick& pick, const shared<std::uint32_t, Count>& b,
                     unsigned place) {
    if (!is_multiplying_) throw std::logic_error("rows are multiplied before they are begun");
    static_assert(Threads % 128 == 0);
    products_.push_back([&state, pick, &b, place] {
      const auto byte = [](bool is_signed, std::uint32_t word, unsigned at) -> std::int32_t {
        const auto raw = static_cast<std::uint8_t>(word >> (8 * at));
        return is_signed ? static_cast<std::int8_t>(raw) : raw;
      };
      std::int32_t columns[64][32];
      for (unsigned i = 0; i < 64 * 32; ++i) {
        const unsigned column = i / 32, k = i % 32;
        const std::uint32_t word =
            b.read(place + column / 8 * 64 + k / 16 * 32 + column % 8 * 4 + k % 16 / 4, column);
        columns[column][k] = byte(SignedB, word, k % 4);
      }
      for (unsigned warp = 0; warp < Threads; warp += 32) {
        std::int32_t rows[16][32];
        for (unsigned lane = 0; lane < 32; ++lane) {
          const cuda::row_product mine = pick(state.of(warp + lane));
          for (unsigned i = 0; i < 16; ++i) {
            rows[lane / 4 + i / 4 % 2 * 8][i / 8 * 16 + lane % 4 * 4 + i % 4] =
                byte(SignedA, mine.a[i / 4], i % 4);
          }
        }
        for (unsigned lane = 0; lane < 32; ++lane) {
          const cuda::row_product mine = pick(state.of(warp + lane));
          for (unsigned i = 0; i < 32; ++i) {
            const auto& row = rows[lane / 4 + i % 4 / 2 * 8];
            const auto& column = columns[i / 4 * 8 + lane % 4 * 2 + i % 2];
            std::int64_t sum = mine.sums[i];
            for (unsigned k = 0; k < 32; ++k) sum += row[k] * column[k];
            if (sum != static_cast<std::int32_t>(sum)) throw std::logic_error("a sum overflows");
            mine.sums[i] = static_cast<std::int32_t>(sum);
          }
        }
      }
    });
  }
  void begin_rows() { is_multiplying_ = true; }
  void finish_rows() {
    for (const auto& multiply : products_) multiply();
    products_.clear();
    is_multiplying_ = false;
  }

  template <unsigned Stages>
  struct stage_marks {};

  /// Stages are filled as early as they may be, and one that is given back loses what it had.
  template <unsigned Bytes, unsigned Stages, class Bring, class Take>
  void pipelined(stage_marks<Stages>&, std::int64_t count, const Bring& bring, const Take& take) {
    struct {
      simulated_block& block;
      std::int64_t count;
      const Bring& bring;
      std::int64_t brought = 0, taken = 0, left = 0;

      unsigned next() {
        if (taken == count) throw std::logic_error("a stage is waited for that nobody brings");
        for (; brought < count && brought < left + Stages; ++brought) {
          simulated_bytes = 0;
          bring(brought, static_cast<unsigned>(brought % Stages));
          if (simulated_bytes != Bytes) throw std::logic_error("a stage has other bytes");
        }
        block.is_at_barrier_ = true;
        return static_cast<unsigned>(taken++ % Stages);
      }
      void leave(unsigned stage) {
        if (stage != left % Stages) throw std::logic_error("a stage is given back in no order");
        if (block.is_multiplying_) throw std::logic_error("a stage is given back in use");
        ++left;
        block.is_at_barrier_ = true;
        ++simulated_phase;
      }
    } stages{*this, count, bring};
    take(stages);
    if (stages.left != count) throw std::logic_error("stages are left over");
  }
  template <unsigned Stages, unsigned Count>
  static void bring_words(stage_marks<Stages>&, unsigned, shared<std::uint32_t, Count>& to,
                          unsigned place, const std::uint32_t* from, unsigned words) {
    if (place % 4 != 0 || words % 4 != 0 || reinterpret_cast<std::uintptr_t>(from) % 16 != 0) {
      throw std::logic_error("a copy is not aligned");
    }
    for (unsigned i = 0; i < words; ++i) to.write(place + i, from[i], Threads);
    simulated_bytes += words * 4;
  }

  /// In another order than the CPU's, which is as good. As mma.m16n8k4 has it: thread 4 g + t holds
  /// rows g and g + 8 and k = t of A, k = t and column g of B, and of the sums rows g and g + 8,
  /// columns 2 t and 2 t + 1.
  template <class T, class Pick>
  void multiply_doubles(own<T>& state, const Pick& pick) {
    static_assert(Threads % 32 == 0);
    for (unsigned warp = 0; warp < Threads; warp += 32) {
      const auto of = [&](unsigned lane) { return pick(state.of(warp + lane)); };
      for (unsigned lane = 0; lane < 32; ++lane) {
        const cuda::double_product mine = of(lane);
        for (unsigned i = 0; i < 4; ++i) {
          const unsigned column = lane % 4 * 2 + i % 2;
          for (unsigned k = 4; k-- > 0;) {
            mine.sums[i] =
                std::fma(of(lane / 4 * 4 + k).a[i / 2], of(column * 4 + k).b, mine.sums[i]);
          }
        }
      }
    }
  }

  template <unsigned Width, class T, unsigned Count>
  static cuda::pack<T, Width> read(const shared<T, Count>& from, unsigned first, unsigned thread) {
    if (first % Width != 0) throw std::logic_error("a pack is not aligned");
    cuda::pack<T, Width> out;
    for (unsigned i = 0; i < Width; ++i) out.at[i] = from.read(first + i, thread);
    return out;
  }
  template <class T, unsigned Count>
  static void write(shared<T, Count>& to, unsigned place, T value, unsigned thread) {
    to.write(place, value, thread);
  }

  template <unsigned Count>
  static void copy(shared<float, Count>& to, unsigned place, const float* from, bool is_there,
                   unsigned thread) {
    to.begin_copy(place, is_there ? *from : 0.0F, thread);
  }
  template <class T, unsigned Count>
  static void copy_four(shared<T, Count>& to, unsigned place, const T* from, unsigned thread) {
    if (place % 4 != 0 || reinterpret_cast<std::uintptr_t>(from) % 16 != 0) {
      throw std::logic_error("a copy is not aligned");
    }
    for (unsigned i = 0; i < 4; ++i) to.begin_copy(place + i, from[i], thread);
  }
  static void end_group(unsigned thread) { simulated_copies.at(thread).emplace_back(); }
  template <unsigned Later>
  static void wait(unsigned thread) {
    copy_groups& mine = simulated_copies.at(thread);
    while (mine.size() > Later + 1) {
      for (const auto& arrive : mine.front()) arrive();
      mine.pop_front();
    }
  }

 private:
  std::uint64_t index_;
  bool is_at_barrier_ = true, is_multiplying_ = false;
  std::vector<unsigned> turns_;
  std::vector<std::function<void()>> products_;
};

}  // namespace potl::test
