// SPDX-License-Identifier: Apache-2.0
// The rounding log for Python: sessions, bytes, proofs.
#include <potl/numeric/detail/rounding_threshold.hpp>
#include <potl/numeric/gemm.hpp>
#include <potl/transcript/detail/record.hpp>

#include <cstring>

#include "bindings.hpp"
#include "rounding_session.hpp"

namespace potl::python {
namespace {

using namespace potl::numeric;

template <class Value>
std::span<Value> values_of(const py::buffer_info& info) {
  std::int64_t expected = static_cast<std::int64_t>(sizeof(Value));
  for (auto at = info.ndim; at-- > 0;) {
    if (info.strides[static_cast<std::size_t>(at)] != expected && info.size > 0) {
      throw exception({errc::usage, "the buffer is not contiguous", ""});
    }
    expected *= info.shape[static_cast<std::size_t>(at)];
  }
  if (!info.item_type_is_equivalent_to<std::remove_const_t<Value>>()) {
    throw exception({errc::usage, "a buffer of another element type than expected", ""});
  }
  return {static_cast<Value*>(info.ptr), static_cast<std::size_t>(info.size)};
}

matrix<const float> matrix_of(const py::buffer_info& info) {
  if (info.ndim != 2) throw exception({errc::usage, "a matrix has two dimensions", ""});
  const auto values = values_of<const float>(info);
  return row_major(values.data(), info.shape[0], info.shape[1]);
}

py::list entries_of(const rounding_log& log) {
  return list_of(log.entries,
                 [](const log_entry& entry) { return py::make_tuple(entry.position, entry.up); });
}

rounding_log log_of(int bits, std::uint64_t values, const py::iterable& entries) {
  rounding_log out{bits, values, {}};
  for (py::handle each : entries) {
    const auto entry = py::cast<std::pair<std::uint64_t, bool>>(each);
    out.entries.push_back({entry.first, entry.second});
  }
  return out;
}

/// The entries of `count` values from `first` on, from `place` on in a log of `values`. Bytes that
/// are no log of so many bits count as one without entries.
py::bytes part_of(py::handle bytes, int bits, std::uint64_t first, std::uint64_t count,
                  std::uint64_t place, std::uint64_t values) {
  const readable_buffer buffer(bytes);
  const auto whole = decode_rounding_log(buffer.bytes());
  rounding_log out{bits, values, {}};
  if (whole && whole->bits == bits) {
    for (const log_entry& one : whole->entries) {
      if (one.position < first || one.position - first >= count) continue;
      out.entries.push_back({one.position - first + place, one.up});
    }
  }
  return to_bytes(encode_rounding_log(out));
}

/// a * b into c under the session's rounding, then logged or corrected.
void multiply(rounding_session& session, const std::string& kind, const py::buffer& a,
              const py::buffer& b, const py::buffer& c) {
  const py::buffer_info a_info = a.request(), b_info = b.request(), c_info = c.request(true);
  const matrix<const float> left = matrix_of(a_info), right = matrix_of(b_info);
  const std::span<float> results = values_of<float>(c_info);
  if (results.size() != static_cast<std::size_t>(left.rows * right.columns)) {
    throw exception({errc::usage, "the result has another size than the product", ""});
  }
  const auto ties = gemm_log64(left, right, row_major(results.data(), left.rows, right.columns),
                               log64_options{session.bits(), session.order()}, inline_executor());
  session.apply(kind, results, ties, matrix_operands(left, right));
}

/// The third party has the operands: `operands(position)` gives both rows.
void judge(const py::buffer& proof, const py::object& committed, int bits, std::uint64_t values,
           const py::function& operands) {
  const readable_buffer bytes(proof);
  const fraud_proof decoded = decode_fraud_proof(bytes.bytes()).value();
  referee_facts facts;
  if (!committed.is_none()) facts.committed = to_digest(committed);
  facts.bits = bits;
  facts.values = values;
  facts.bind = [&](const fraud_element& element) -> status {
    const auto rows = py::cast<std::pair<py::buffer, py::buffer>>(operands(element.position));
    const auto equal = [](const py::buffer& buffer, const std::vector<float>& shown) {
      const py::buffer_info info = buffer.request();
      const auto own = values_of<const float>(info);
      return own.size() == shown.size() &&
             (own.empty() ||
              std::memcmp(own.data(), shown.data(), own.size() * sizeof(float)) == 0);
    };
    if (equal(rows.first, element.a) && equal(rows.second, element.b)) return unit{};
    return error{errc::mismatch, "the proof shows other operands", ""};
  };
  require(referee(decoded, facts));
}

void bind_published(py::module_& module) {
  module.def(
      "search_threshold",
      [](const py::buffer& trainer, const py::buffer& auditor, int bits) {
        const py::buffer_info first = trainer.request(), second = auditor.request();
        const threshold found =
            search_threshold(values_of<const double>(first), values_of<const double>(second), bits);
        py::dict out;
        out["tau"] = found.tau;
        out["mismatches"] = found.mismatches;
        out["uncovered"] = found.uncovered;
        out["logged"] = found.logged;
        return out;
      },
      py::arg("trainer"), py::arg("auditor"), py::kw_only(), py::arg("bits"));
}

}  // namespace

void bind_rounding(py::module_& module) {
  module.def(
      "encode_rounding_log",
      [](int bits, std::uint64_t values, const py::iterable& entries) {
        return to_bytes(encode_rounding_log(log_of(bits, values, entries)));
      },
      py::kw_only(), py::arg("bits"), py::arg("values"), py::arg("entries"));
  module.def("decode_rounding_log", [](py::handle bytes) {
    const readable_buffer buffer(bytes);
    const rounding_log log = decode_rounding_log(buffer.bytes()).value();
    py::dict out;
    out["bits"] = log.bits;
    out["values"] = log.values;
    out["entries"] = entries_of(log);
    return out;
  });
  module.attr("MAX_ROUNDING_LOG_BYTES") = transcript::max_rounding_log_bytes;
  module.def("part_of_rounding_log", &part_of, py::arg("log"), py::kw_only(), py::arg("bits"),
             py::arg("first"), py::arg("count"), py::arg("place"), py::arg("values"));
  module.def("rounding_log_digest", [](py::handle bytes) {
    const readable_buffer buffer(bytes);
    return to_bytes(rounding_log_digest(buffer.bytes()));
  });
  module.def("referee_rounding", &judge, py::arg("proof"), py::kw_only(), py::arg("committed"),
             py::arg("bits"), py::arg("values"), py::arg("operands"));
  bind_rounding_session(module).def("multiply", &multiply, py::arg("kind"), py::arg("a"),
                                    py::arg("b"), py::arg("out"));
  bind_published(module);
}

}  // namespace potl::python
