// SPDX-License-Identifier: Apache-2.0
// Attention against its formulas, at every level and with threads.
#include <cmath>
#include <limits>
#include <random>

#include <potl/core/error.hpp>
#include <potl/numeric/detail/attention.hpp>
#include <potl/numeric/elementwise.hpp>

#include "catch.hpp"
#include "numeric_levels.hpp"
#include "sum_definition.hpp"

using namespace potl::numeric;
using namespace potl::test;

namespace {

constexpr std::int64_t block = 128;

template <class Real>
using rows = std::vector<std::vector<Real>>;

template <class Real>
struct one_head {
  rows<Real> q, k, v, dy;      // operands
  rows<Real> out, dq, dk, dv;  // results
  std::vector<Real> logsumexp;
};

/// [rows][columns] of random values.
template <class Real>
rows<Real> random(std::size_t count, std::size_t columns, std::uint64_t seed) {
  std::mt19937_64 draw(seed);
  std::normal_distribution<double> normal(0.1, 1.5);
  rows<Real> x(count, std::vector<Real>(columns));
  for (auto& row : x)
    for (Real& one : row) one = static_cast<Real>(normal(draw));
  return x;
}

/// The chain of ord32; fewer than 512 terms.
template <class Real, class A, class B>
Real chain(std::size_t count, const A& a, const B& b) {
  Real sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum = std::fma(a(i), b(i), sum);
  return sum;
}

/// sums[j][c] becomes or gets the chain over rows of left[.][j] right[.][c].
template <class Real>
void add_product(rows<Real>& sums, std::size_t begun, std::size_t seen, const rows<Real>& left,
                 const rows<Real>& right, std::size_t first) {
  for (std::size_t j = 0; j < seen; ++j) {
    for (std::size_t c = 0; c < sums[j].size(); ++c) {
      const Real one = chain<Real>(
          left.size(), [&](std::size_t i) { return left[i][j]; },
          [&](std::size_t i) { return right[first + i][c]; });
      sums[j][c] = j < begun ? sums[j][c] + one : one;
    }
  }
}

/// The page's formulas; `begun` keys of dk and dv have a sum already. added: [query][key] or empty.
template <class Real>
void define(one_head<Real>& h, bool causal, Real scale, const rows<Real>& added,
            std::size_t& begun) {
  const std::size_t queries = h.q.size(), width = h.q[0].size();
  for (std::size_t first = 0; first < queries; first += block) {
    const std::size_t last = std::min<std::size_t>(queries, first + block);
    const std::size_t seen = causal ? std::min(last, h.k.size()) : h.k.size();
    rows<Real> p, slope;
    for (std::size_t i = first; i < last; ++i) {
      std::vector<Real> s;
      for (std::size_t j = 0; j < (causal ? std::min(i + 1, seen) : seen); ++j) {
        s.push_back(chain<Real>(
                        width, [&](std::size_t c) { return h.q[i][c]; },
                        [&](std::size_t c) { return h.k[j][c]; }) *
                    scale);
        if (!added.empty()) s.back() += added[i][j];
      }
      Real m = *std::max_element(s.begin(), s.end());
      const bool empty = std::isinf(m);
      if (empty) m = 0;
      for (Real& one : s) one = evaluate(unary::exp, one - m);
      const Real total = defined_sum(s);
      h.logsumexp.push_back(m + evaluate(unary::log, total));
      for (Real& one : s) one = empty ? 0 : one / total;
      s.resize(seen, 0);
      p.push_back(s);
      std::vector<Real> out, up, products, dq;
      for (std::size_t c = 0; c < h.v[0].size(); ++c)
        out.push_back(chain<Real>(
            seen, [&](std::size_t j) { return s[j]; }, [&](std::size_t j) { return h.v[j][c]; }));
      for (std::size_t j = 0; j < seen; ++j) {
        up.push_back(chain<Real>(
            h.v[0].size(), [&](std::size_t c) { return h.dy[i][c]; },
            [&](std::size_t c) { return h.v[j][c]; }));
        products.push_back(up[j] * s[j]);
      }
      const Real dot = defined_sum(products);
      for (std::size_t j = 0; j < seen; ++j) up[j] = (s[j] * (up[j] - dot)) * scale;
      for (std::size_t c = 0; c < width; ++c)
        dq.push_back(chain<Real>(
            seen, [&](std::size_t j) { return up[j]; }, [&](std::size_t j) { return h.k[j][c]; }));
      slope.push_back(up);
      h.out.push_back(out);
      h.dq.push_back(dq);
    }
    add_product(h.dv, begun, seen, p, h.dy, first);
    add_product(h.dk, begun, seen, slope, h.q, first);
    begun = std::max(begun, seen);
  }
}

/// Heads as [head][row][column], columns adjacent.
template <class Real>
std::vector<Real> flat(const std::vector<rows<Real>>& heads) {
  std::vector<Real> out;
  for (const auto& head : heads)
    for (const auto& row : head) out.insert(out.end(), row.begin(), row.end());
  return out;
}

template <class Element>
head_view<Element> view(Element* data, std::int64_t count, std::int64_t columns) {
  return {data, {0, count * columns, columns, 1}};
}

struct scene {
  std::int64_t queries, keys, width, value_width, sharing;
  bool causal, masked;
};

void run(const attention_forward<float>& w, const executor& e) {
  attention(arithmetic::ord32, w, e);
}
void run(const attention_backward<float>& w, const executor& e) {
  attention(arithmetic::ord32, w, e);
}
template <class Work>
void run(const Work& w, const executor& e) {
  attention(w, e);
}

template <class Real>
void check(const scene& s) {
  const auto size = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  const std::int64_t key_heads = 2, heads = key_heads * s.sharing;
  const Real scale = Real(0.37);
  rows<Real> added;
  if (s.masked) {
    added = random<Real>(size(s.queries), size(s.keys), 9);
    for (auto& row : added) row[0] = -std::numeric_limits<Real>::infinity();
    std::fill(added[1].begin(), added[1].end(), -std::numeric_limits<Real>::infinity());
  }
  std::vector<rows<Real>> q, k, v, dy, out, dq, dk, dv;
  std::vector<Real> logsumexp;
  for (std::int64_t key_head = 0; key_head < key_heads; ++key_head) {
    one_head<Real> h;
    h.k = random<Real>(size(s.keys), size(s.width), 100 + size(key_head));
    h.v = random<Real>(size(s.keys), size(s.value_width), 200 + size(key_head));
    h.dk.assign(size(s.keys), std::vector<Real>(size(s.width)));
    h.dv.assign(size(s.keys), std::vector<Real>(size(s.value_width)));
    std::size_t begun = 0;
    for (std::int64_t i = 0; i < s.sharing; ++i) {
      h.q = random<Real>(size(s.queries), size(s.width), 300 + q.size());
      h.dy = random<Real>(size(s.queries), size(s.value_width), 400 + q.size());
      h.out.clear(), h.dq.clear(), h.logsumexp.clear();
      define(h, s.causal, scale, added, begun);
      q.push_back(h.q), dy.push_back(h.dy), out.push_back(h.out), dq.push_back(h.dq);
      logsumexp.insert(logsumexp.end(), h.logsumexp.begin(), h.logsumexp.end());
    }
    k.push_back(h.k), v.push_back(h.v), dk.push_back(h.dk), dv.push_back(h.dv);
  }
  const auto pool = make_thread_pool(3);
  at_each_level_and_end([&](isa, guarded_end at) {
    const guarded fq(flat(q), at), fk(flat(k), at), fv(flat(v), at), fdy(flat(dy), at);
    const guarded mask(flat<Real>({added}), at);
    for (const executor* workers : {&inline_executor(), static_cast<const executor*>(pool.get())}) {
      attention_forward<Real> f;
      f.shape = {1, heads, key_heads, s.queries, s.keys, s.width, s.value_width, s.causal, scale};
      f.query = view(fq.data(), s.queries, s.width);
      f.keys = view(fk.data(), s.keys, s.width);
      f.values = view(fv.data(), s.keys, s.value_width);
      if (s.masked) f.mask.added = {mask.data(), {0, 0, s.keys, 1}};
      guarded<Real> y(fdy.size(), at), sums(logsumexp.size(), at);
      f.output = view(y.data(), s.queries, s.value_width);
      f.logsumexp = sums.data();
      run(f, *workers);
      CHECK(same_bits(y, flat(out)));
      CHECK(same_bits(sums, logsumexp));
      guarded<Real> a(fq.size(), at), b(fk.size(), at), c(fv.size(), at);
      attention_backward<Real> g{f.shape,
                                 view(fdy.data(), s.queries, s.value_width),
                                 f.query,
                                 f.keys,
                                 f.values,
                                 f.mask,
                                 view(a.data(), s.queries, s.width),
                                 view(b.data(), s.keys, s.width),
                                 view(c.data(), s.keys, s.value_width)};
      run(g, *workers);
      CHECK(same_bits(a, flat(dq)));
      CHECK(same_bits(b, flat(dk)));
      CHECK(same_bits(c, flat(dv)));
    }
  });
}

}  // namespace

TEST_CASE("attention is its formulas", "[attention]") {
  for (const scene& s : {scene{5, 7, 4, 3, 1, false, false}, scene{133, 40, 8, 8, 1, false, true},
                         scene{150, 150, 8, 6, 2, true, false},
                         scene{140, 160, 4, 4, 1, true, true}, scene{9, 5, 3, 2, 3, true, false}}) {
    check<float>(s);
    check<double>(s);
  }
}

TEST_CASE("attention refuses log64 and heads that do not fit", "[attention]") {
  attention_forward<float> work;
  CHECK_THROWS_AS(attention(arithmetic::log64, work, inline_executor()), potl::exception);
  work.shape.heads = 3, work.shape.key_heads = 2;
  CHECK_THROWS_AS(attention(arithmetic::ord32, work, inline_executor()), potl::exception);
}
