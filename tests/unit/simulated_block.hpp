// SPDX-License-Identifier: Apache-2.0
// A block of a GPU, simulated: the threads of a phase run one after the other, in any order. Finds
// words of shared memory that two threads touch, one of them writing, with no barrier between, and
// words that are read before anybody has written them.
#pragma once

#include <algorithm>
#include <array>
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
    ++simulated_phase;
    for (const unsigned thread : turns_) phase(thread);
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
  std::vector<unsigned> turns_;
};

}  // namespace potl::test
