// SPDX-License-Identifier: Apache-2.0
// Everything that a program without PyTorch can use. scripts/umbrella.py writes this file.
#pragma once

#include <potl/checks/request.hpp>
#include <potl/core/digest.hpp>
#include <potl/core/dtype.hpp>
#include <potl/core/error.hpp>
#include <potl/core/file.hpp>
#include <potl/core/finding.hpp>
#include <potl/core/result.hpp>
#include <potl/core/rng.hpp>
#include <potl/core/rules.hpp>
#include <potl/core/utf8.hpp>
#include <potl/crypto/challenge.hpp>
#include <potl/crypto/hasher.hpp>
#include <potl/crypto/merkle.hpp>
#include <potl/crypto/prf.hpp>
#include <potl/crypto/signature.hpp>
#include <potl/crypto/signed_note.hpp>
#include <potl/crypto/tensor_digest.hpp>
#include <potl/numeric/random.hpp>
#include <potl/transcript/batch_order.hpp>
#include <potl/transcript/commitment.hpp>
#include <potl/transcript/evidence.hpp>
#include <potl/transcript/job.hpp>
#include <potl/transcript/json.hpp>
#include <potl/transcript/record.hpp>
#include <potl/transcript/safetensors.hpp>
#include <potl/transcript/snapshot.hpp>
#include <potl/transcript/state.hpp>
#include <potl/transcript/writer.hpp>
