// SPDX-License-Identifier: Apache-2.0
// The files of a run, as evidence reads them: those of a directory. Where that mirrors a run
// elsewhere (file_fetcher of evidence.hpp), what is read is brought first. Errors are those of
// read_entry and read_entry_part, or of who brings it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <potl/core/file.hpp>
#include <potl/evidence/evidence.hpp>

namespace potl::transcript {

class run_files {
 public:
  run_files(std::string directory, file_fetcher fetch)
      : directory_(std::move(directory)), fetch_(std::move(fetch)) {}

  const std::string& directory() const noexcept { return directory_; }

  result<std::vector<std::uint8_t>> read(const std::string& name, std::uint64_t max_bytes) const;
  result<std::vector<std::uint8_t>> read_part(const std::string& name, std::uint64_t offset,
                                              std::uint64_t size) const;
  /// The first `head` bytes can be read; all can where there are no more than `max_bytes`.
  result<file_pieces> open(const std::string& name, std::uint64_t head,
                           std::uint64_t max_bytes) const;

 private:
  status bring(const std::string& name, std::uint64_t offset, std::uint64_t size) const;

  std::string directory_;
  file_fetcher fetch_;
};

}  // namespace potl::transcript
