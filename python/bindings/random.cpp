// SPDX-License-Identifier: Apache-2.0
#include <potl/crypto/challenge.hpp>
#include <potl/crypto/detail/prf.hpp>
#include <potl/numeric/detail/random.hpp>
#include <potl/numeric/detail/sampling.hpp>

#include <bit>
#include <string_view>

#include "bindings.hpp"

namespace potl::python {
namespace {

static_assert(std::endian::native == std::endian::little, "buffers are little-endian");

/// A writable contiguous buffer of float32, float64, int64 or uint8 (bool counts as uint8).
class writable_buffer {
 public:
  explicit writable_buffer(py::handle object) {
    constexpr int flags = PyBUF_WRITABLE | PyBUF_FORMAT | PyBUF_C_CONTIGUOUS;
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw py::error_already_set();
  }
  ~writable_buffer() { PyBuffer_Release(&view_); }
  writable_buffer(const writable_buffer&) = delete;
  writable_buffer& operator=(const writable_buffer&) = delete;

  /// Calls `function` without the interpreter lock, with a span of the first of `Values` that the
  /// buffer holds; UsageError when it holds none of them.
  template <class... Values, class Function>
  void visit(Function function) const {
    const bool found = (try_as<Values>(function) || ...);
    if (!found) {
      throw exception({errc::usage,
                       "cannot fill a buffer of format \"" + std::string(format()) + "\"",
                       "use a contiguous buffer of float32, float64, int64 or uint8"});
    }
  }

 private:
  std::string_view format() const {
    std::string_view format = view_.format == nullptr ? "B" : view_.format;
    while (!format.empty() && std::string_view("@=<").find(format[0]) != std::string_view::npos) {
      format.remove_prefix(1);
    }
    return format;
  }

  template <class Value>
  static constexpr std::string_view formats();

  template <class Value, class Function>
  bool try_as(Function& function) const {
    const std::string_view code = format();
    if (code.size() != 1 || formats<Value>().find(code) == std::string_view::npos) return false;
    if (view_.itemsize != static_cast<Py_ssize_t>(sizeof(Value))) return false;
    if (reinterpret_cast<std::uintptr_t>(view_.buf) % alignof(Value) != 0) return false;
    const std::span<Value> values(static_cast<Value*>(view_.buf),
                                  static_cast<std::size_t>(view_.len) / sizeof(Value));
    py::gil_scoped_release released;
    function(values);
    return true;
  }

  Py_buffer view_{};
};

template <>
constexpr std::string_view writable_buffer::formats<float>() {
  return "f";
}
template <>
constexpr std::string_view writable_buffer::formats<double>() {
  return "d";
}
template <>
constexpr std::string_view writable_buffer::formats<std::int64_t>() {
  return "ql";
}
template <>
constexpr std::string_view writable_buffer::formats<std::uint8_t>() {
  return "B?";
}

/// 16 bytes, or 32 of which the first 16 are used (what derive_key returns).
random_key to_key(py::handle key) {
  const readable_buffer buffer(key);
  if (buffer.bytes().size() != 16 && buffer.bytes().size() != 32) {
    throw exception({errc::usage, "a key has 16 or 32 bytes", "derive_key() makes keys"});
  }
  digest padded;
  std::copy(buffer.bytes().begin(), buffer.bytes().end(), padded.bytes.begin());
  return to_random_key(padded);
}

std::span<const double> doubles_of(const readable_buffer& buffer) {
  const bytes_view bytes = buffer.bytes();
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(double) != 0 ||
      bytes.size() % sizeof(double) != 0) {
    throw exception({errc::usage, "parameters of samples are float64", "use a contiguous buffer"});
  }
  return {reinterpret_cast<const double*>(bytes.data()), bytes.size() / sizeof(double)};
}

void bind_challenges(py::module_& module) {
  module.def("fresh_nonce", [] { return to_bytes(fresh_nonce()); });
  module.def(
      "draw_without_replacement",
      [](py::handle nonce, py::handle commitment, const std::string& label,
         std::uint64_t population, std::uint64_t count) {
        const digest seed = challenge_seed(to_digest(nonce), to_digest(commitment), label);
        return draw_without_replacement(seed, population, count).value();
      },
      py::arg("nonce"), py::arg("commitment"), py::arg("label"), py::arg("population"),
      py::arg("count"));
  module.def(
      "derive_key",
      [](std::uint64_t seed, const std::string& label, const py::args& indices) {
        std::vector<std::uint64_t> values;
        for (py::handle index : indices) values.push_back(py::cast<std::uint64_t>(index));
        return to_bytes(derive_key(seed, label, values));
      },
      py::arg("seed"), py::arg("label"));
  module.def(
      "permutation",
      [](py::handle key, std::uint64_t count) {
        const random_key bits = to_key(key);
        // Filled in place: a data set's permutation may be large.
        if (count > std::uint64_t{1} << 40) {
          throw exception({errc::usage, "a permutation has at most 2^40 elements", ""});
        }
        py::bytes out(nullptr, static_cast<std::size_t>(count) * sizeof(std::int64_t));
        const std::span<std::int64_t> values(
            reinterpret_cast<std::int64_t*>(PyBytes_AS_STRING(out.ptr())),
            static_cast<std::size_t>(count));
        py::gil_scoped_release released;
        fill_permutation(bits, values);
        return out;
      },
      py::arg("key"), py::arg("count"));
}

void bind_fills(py::module_& module) {
  using u64 = std::uint64_t;
  module.def(
      "fill_uniform",
      [](py::handle buffer, py::handle key, u64 counter, double low, double high) {
        const random_key bits = to_key(key);
        writable_buffer(buffer).visit<float, double>(
            [&](auto out) { fill_uniform(out, bits, counter, low, high); });
      },
      py::arg("buffer"), py::arg("key"), py::arg("counter"), py::arg("low"), py::arg("high"));
  module.def(
      "fill_normal",
      [](py::handle buffer, py::handle key, u64 counter, double mean, double deviation) {
        const random_key bits = to_key(key);
        writable_buffer(buffer).visit<float, double>(
            [&](auto out) { fill_normal(out, bits, counter, mean, deviation); });
      },
      py::arg("buffer"), py::arg("key"), py::arg("counter"), py::arg("mean"), py::arg("deviation"));
  module.def(
      "fill_bernoulli",
      [](py::handle buffer, py::handle key, u64 counter, double probability) {
        const random_key bits = to_key(key);
        writable_buffer(buffer).visit<float, double, std::uint8_t>(
            [&](auto out) { fill_bernoulli(out, bits, counter, probability); });
      },
      py::arg("buffer"), py::arg("key"), py::arg("counter"), py::arg("probability"));
  module.def(
      "fill_exponential",
      [](py::handle buffer, py::handle key, u64 counter, double rate) {
        const random_key bits = to_key(key);
        writable_buffer(buffer).visit<float, double>(
            [&](auto out) { fill_exponential(out, bits, counter, rate); });
      },
      py::arg("buffer"), py::arg("key"), py::arg("counter"), py::arg("rate"));
  module.def(
      "fill_integers",
      [](py::handle buffer, py::handle key, u64 counter, std::int64_t low, std::int64_t high) {
        const random_key bits = to_key(key);
        writable_buffer(buffer).visit<std::int64_t>(
            [&](auto out) { fill_integers(out, bits, counter, low, high); });
      },
      py::arg("buffer"), py::arg("key"), py::arg("counter"), py::arg("low"), py::arg("high"));
  module.def(
      "fill_permutation",
      [](py::handle buffer, py::handle key) {
        const random_key bits = to_key(key);
        writable_buffer(buffer).visit<std::int64_t>([&](auto out) { fill_permutation(bits, out); });
      },
      py::arg("buffer"), py::arg("key"));
  module.def(
      "fill_erfinv",
      [](py::handle buffer) {
        writable_buffer(buffer).visit<float, double>([](auto out) { fill_erfinv(out); });
      },
      py::arg("buffer"));
}

/// `fill(out, parameters, key, counter)` with one float64 parameter for each sample or category.
template <class... Values, class Fill>
void bind_sample(py::module_& module, const char* name, const char* parameters, Fill fill) {
  module.def(
      name,
      [fill](py::handle buffer, py::handle key, std::uint64_t counter, py::handle values) {
        const random_key bits = to_key(key);
        const readable_buffer of(values);
        writable_buffer(buffer).visit<Values...>(
            [&](auto out) { fill(out, doubles_of(of), bits, counter); });
      },
      py::arg("buffer"), py::arg("key"), py::arg("counter"), py::arg(parameters));
}

void bind_samples(py::module_& module) {
  using u64 = std::uint64_t;
  bind_sample<float, double>(
      module, "fill_gamma", "shapes",
      [](auto out, auto shapes, auto key, u64 counter) { fill_gamma(out, shapes, key, counter); });
  bind_sample<double>(module, "fill_poisson", "rates", fill_poisson);
  bind_sample<std::int64_t>(module, "fill_categories", "weights", fill_categories);
  module.def(
      "fill_dirichlet",
      [](py::handle buffer, py::handle key, u64 counter, py::handle shapes, std::size_t columns) {
        const random_key bits = to_key(key);
        const readable_buffer of(shapes);
        writable_buffer(buffer).visit<float, double>(
            [&](auto out) { fill_dirichlet(out, doubles_of(of), columns, bits, counter); });
      },
      py::arg("buffer"), py::arg("key"), py::arg("counter"), py::arg("shapes"), py::arg("columns"));
  module.def(
      "fill_binomial",
      [](py::handle buffer, py::handle key, u64 counter, py::handle trials,
         py::handle probabilities) {
        const random_key bits = to_key(key);
        const readable_buffer of(trials), with(probabilities);
        writable_buffer(buffer).visit<double>(
            [&](auto out) { fill_binomial(out, doubles_of(of), doubles_of(with), bits, counter); });
      },
      py::arg("buffer"), py::arg("key"), py::arg("counter"), py::arg("trials"),
      py::arg("probabilities"));
}

}  // namespace

void bind_random(py::module_& module) {
  bind_challenges(module);
  bind_fills(module);
  bind_samples(module);
}

}  // namespace potl::python
