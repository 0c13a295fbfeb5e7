// SPDX-License-Identifier: Apache-2.0
#include <potl/transcript/detail/record.hpp>

#include <algorithm>
#include <cmath>

#include <potl/core/detail/utf8.hpp>

#include "transcript/little_endian.hpp"

namespace potl::transcript {
namespace {

// The first byte of a record; never reused for another layout.
enum kind : std::uint8_t { header = 1, initial = 2, step = 3, resume = 4, close = 5 };

// Of a step that binds a rounding log; all else has the format's version.
constexpr std::uint8_t rounded_version = 2;

void begin(field_writer& out, std::uint8_t which, const digest& job_id,
           std::uint8_t version = format_version) {
  out.u8(which);
  out.u8(version);
  out.raw(job_id);
}

struct encoder {
  field_writer out;

  void operator()(const header_record& what) {
    begin(out, header, what.job_id);
    out.raw(what.trainer);
    out.u32(static_cast<std::uint32_t>(what.software.size()));
    out.raw(as_bytes_view(what.software));
  }
  void operator()(const initial_record& what) {
    begin(out, initial, what.job_id);
    out.raw(what.state);
  }
  void operator()(const step_record& what) {
    begin(out, step, what.job_id, what.rounding ? rounded_version : format_version);
    out.u64(what.step);
    out.u64(what.epoch);
    out.raw(what.sample_ids);
    out.f64(what.loss);
    out.u64(what.random_draws);
    out.u32(what.flags);
    out.u64(what.duration_ns);
    out.raw(what.state);
    out.u32(static_cast<std::uint32_t>(what.rates.size()));
    for (const double rate : what.rates) out.f64(rate);
    if (!what.rounding) return;
    out.raw(what.rounding->content);
    out.u64(what.rounding->bytes);
  }
  void operator()(const resume_record& what) {
    begin(out, resume, what.job_id);
    out.u64(what.from_step);
    out.u64(what.last_step);
    out.u64(what.number);
    out.u64(what.log_size);
    out.raw(what.log_root);
    out.raw(what.state);
    out.raw(what.signature);
  }
  void operator()(const close_record& what) {
    begin(out, close, what.job_id);
    out.u64(what.step);
    out.raw(what.state);
    out.raw(what.telemetry);
  }
};

error malformed_record(const std::string& message) {
  return {errc::malformed, "record: " + message, ""};
}

result<record> read_header(field_reader& in, const digest& job_id) {
  header_record out{job_id, in.digest(), ""};
  const std::uint32_t size = in.u32();
  if (size > max_software_bytes) return malformed_record("the software's name is too long");
  out.software = in.text(size);
  if (!is_utf8(out.software)) return malformed_record("the software's name is not UTF-8");
  return record(std::move(out));
}

result<record> read_step(field_reader& in, const digest& job_id, bool rounded) {
  step_record out;
  out.job_id = job_id;
  out.step = in.u64();
  out.epoch = in.u64();
  out.sample_ids = in.digest();
  out.loss = in.f64();
  out.random_draws = in.u64();
  out.flags = in.u32();
  out.duration_ns = in.u64();
  out.state = in.digest();
  const std::uint32_t count = in.u32();
  if ((out.flags & ~all_step_flags) != 0) return malformed_record("unknown step flags");
  // Before memory is taken: the rates, and what version 2 adds, are all that is left.
  const std::size_t added = rounded ? digest::size + 8 : 0;
  if (count > max_rates || in.remaining() != std::size_t{count} * 8 + added) {
    return malformed_record("a step has a wrong number of rates");
  }
  out.rates.resize(count);
  for (double& rate : out.rates) rate = in.f64();
  if (rounded) {
    rounding_reference log{in.digest(), 0};
    log.bytes = in.u64();
    if (log.bytes == 0 || log.bytes > max_rounding_log_bytes) {
      return malformed_record("a rounding log of " + std::to_string(log.bytes) + " bytes");
    }
    out.rounding = log;
  }
  return record(std::move(out));
}

record read_resume(field_reader& in, const digest& job_id) {
  resume_record out;
  out.job_id = job_id;
  out.from_step = in.u64();
  out.last_step = in.u64();
  out.number = in.u64();
  out.log_size = in.u64();
  out.log_root = in.digest();
  out.state = in.digest();
  in.fill(out.signature);
  return out;
}

result<record> read_body(std::uint8_t which, field_reader& in, const digest& job_id, bool rounded) {
  switch (which) {
    case header: return read_header(in, job_id);
    case initial: return record(initial_record{job_id, in.digest()});
    case step: return read_step(in, job_id, rounded);
    case resume: return read_resume(in, job_id);
    case close: {
      close_record out{job_id, in.u64(), {}, {}};
      out.state = in.digest();
      out.telemetry = in.digest();
      return record(std::move(out));
    }
    default: return malformed_record("unknown kind " + std::to_string(which));
  }
}

}  // namespace

void encode_into(const record& what, std::vector<std::uint8_t>& out) {
  std::visit(encoder{field_writer(out)}, what);
}

std::vector<std::uint8_t> encode(const record& what) {
  std::vector<std::uint8_t> out;
  encode_into(what, out);
  return out;
}

result<record> decode(bytes_view bytes) {
  field_reader in(bytes);
  const std::uint8_t which = in.u8();
  const std::uint8_t version = in.u8();
  const digest job_id = in.digest();
  if (in.failed()) return malformed_record("too short");
  const bool rounded = which == step && version == rounded_version;
  if (version != format_version && !rounded) {
    return error{errc::unsupported, "record: format version " + std::to_string(version),
                 "a newer potl may read it"};
  }
  result<record> out = read_body(which, in, job_id, rounded);
  if (out && !in.complete()) return malformed_record("wrong length");
  return out;
}

bool has_diverged(std::uint32_t flags) noexcept {
  return has(flags, step_flag::non_finite) && !has(flags, step_flag::skipped);
}

bool has_diverged(const step_record& one) noexcept {
  if (!std::isfinite(one.loss) && !has(one.flags, step_flag::skipped)) return true;
  return has_diverged(one.flags);
}

bool has_diverged_by(std::uint64_t step, std::span<const step_record> steps) noexcept {
  return std::any_of(steps.begin(), steps.end(), [step](const step_record& one) {
    return one.step <= step + 1 && has_diverged(one);
  });
}

std::vector<std::uint8_t> resume_message(const resume_record& what) {
  std::vector<std::uint8_t> out;
  field_writer fields(out);
  fields.raw(as_bytes_view("potl.resume.v1"));
  fields.u8(0);
  encode_into(what, out);
  out.resize(out.size() - what.signature.size());
  return out;
}

}  // namespace potl::transcript
