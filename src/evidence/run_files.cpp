// SPDX-License-Identifier: Apache-2.0
#include "evidence/run_files.hpp"

#include <algorithm>

namespace potl::transcript {

status run_files::bring(const std::string& name, std::uint64_t offset, std::uint64_t size) const {
  if (!fetch_ || size == 0) return unit{};
  return fetch_(name, offset, size);
}

result<std::vector<std::uint8_t>> run_files::read(const std::string& name,
                                                  std::uint64_t max_bytes) const {
  const result<file_pieces> file = open(name, 0, max_bytes);
  if (!file) return file.why();
  return file->read_all(max_bytes);
}

result<std::vector<std::uint8_t>> run_files::read_part(const std::string& name,
                                                       std::uint64_t offset,
                                                       std::uint64_t size) const {
  const result<file_pieces> file = file_pieces::open_entry(directory_, name);
  if (!file) return file.why();
  // Of a file that ends before, nothing is wanted: reading it says so.
  if (offset <= file->size() && size <= file->size() - offset) {
    if (const status brought = bring(name, offset, size); !brought) return brought.why();
  }
  return read_entry_part(directory_, name, offset, size);
}

result<file_pieces> run_files::open(const std::string& name, std::uint64_t head,
                                    std::uint64_t max_bytes) const {
  result<file_pieces> file = file_pieces::open_entry(directory_, name);
  if (!file || !fetch_) return file;
  const bool whole = file->size() <= max_bytes;
  const status brought = bring(name, 0, whole ? file->size() : std::min(head, file->size()));
  if (!brought) return brought.why();
  // Opened again: it may have been written to.
  return file_pieces::open_entry(directory_, name);
}

}  // namespace potl::transcript
