// SPDX-License-Identifier: Apache-2.0
// Typed errors. Parsing untrusted bytes returns a result<T> (result.hpp); exceptions are for misuse
// and I/O.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace potl {

/// What went wrong, coarse enough to choose an exit code, an exception class and a reaction.
enum class errc {
  malformed,    ///< bytes that do not follow the format (exit 4)
  limit,        ///< a declared size, count or depth beyond what is accepted (exit 4)
  mismatch,     ///< well-formed, but a digest, proof or signature does not fit
  missing,      ///< something that should be there is not
  io,           ///< the operating system refused a read or a write
  usage,        ///< the caller's mistake (exit 2)
  unsupported,  ///< a valid request that this build or version cannot serve
  internal,     ///< a defect of potl itself
};

/// Name of an error code in lower case, e.g. "malformed".
const char* to_string(errc code) noexcept;

/// One error as a value: code, what happened, and what the reader can do about it (may be empty).
struct error {
  errc code = errc::internal;
  std::string message;
  std::string remedy;
};

/// The exception that carries an `error` where a value cannot be returned (constructors, background
/// threads).
class exception : public std::runtime_error {
 public:
  explicit exception(error what)
      : std::runtime_error(what.remedy.empty() ? what.message
                                               : what.message + " (" + what.remedy + ")"),
        error_(std::move(what)) {}
  const error& details() const noexcept { return error_; }

 private:
  error error_;
};

}  // namespace potl
