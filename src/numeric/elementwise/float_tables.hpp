// SPDX-License-Identifier: Apache-2.0
// Tables of float_functions.hpp.
#pragma once

#include "lanes.hpp"

namespace potl::numeric::elementwise {
namespace {
namespace in_float {

/// c, about 1 / m, of 5 bits, for m in each sixteenth from 1 to 2.
POTL_INLINE const float (&log_factor())[16] {
  static constexpr float values[16] = {
      0x1p+0f,   0x1.dp-1f, 0x1.cp-1f, 0x1.ap-1f, 0x1.9p-1f, 0x1.8p-1f, 0x1.7p-1f, 0x1.6p-1f,
      0x1.5p-1f, 0x1.4p-1f, 0x1.3p-1f, 0x1.3p-1f, 0x1.2p-1f, 0x1.1p-1f, 0x1.1p-1f, 0x1p-1f};
  return values;
}
/// -log c, rounded to a multiple of 2^-16.
POTL_INLINE const float (&log_high())[16] {
  static constexpr float values[16] = {0,
                                       0x1.933p-4f,
                                       0x1.1178p-3f,
                                       0x1.a94p-3f,
                                       0x1.f99p-3f,
                                       0x1.2698p-2f,
                                       0x1.522cp-2f,
                                       0x1.7fbp-2f,
                                       0x1.af54p-2f,
                                       0x1.e148p-2f,
                                       0x1.0ae8p-1f,
                                       0x1.0ae8p-1f,
                                       0x1.2696p-1f,
                                       0x1.43dap-1f,
                                       0x1.43dap-1f,
                                       0x1.62e4p-1f};
  return values;
}
/// What that rounding lost.
POTL_INLINE const float (&log_low())[16] {
  static constexpr float values[16] = {0,
                                       0x1.797566p-18f,
                                       0x1.d044fcp-20f,
                                       -0x1.2c3752p-19f,
                                       0x1.c6cb3cp-19f,
                                       -0x1.deecb2p-18f,
                                       -0x1.1f8c76p-18f,
                                       -0x1.7109fap-20f,
                                       -0x1.6adb74p-18f,
                                       0x1.4344e4p-19f,
                                       -0x1.23a5f6p-18f,
                                       -0x1.23a5f6p-18f,
                                       0x1.089a6ep-20f,
                                       -0x1.a0db88p-26f,
                                       -0x1.a0db88p-26f,
                                       0x1.7f7d1cp-20f};
  return values;
}
/// tanh(a) - min(a, 1): see piece_of.
POTL_INLINE const float (&tanh_table())[8][16] {
  static constexpr float values[8][16] = {
      {0x1.400036p+0f, 0x1.c00016p+0f, 0x1.20000ap+1f, 0x1.600052p+1f, 0x1.c0004cp+1f,
       0x1.20001p+2f, 0x1.600002p+2f, 0x1.a0000ap+2f, 0x1.000044p+3f, 0x1.24006ap+3f, 0, 0, 0,
       0x1.80000ap-2f, 0x1.40001p-1f, 0x1.c0003ep-1f},
      {-0x1.36b698p-3f, -0x1.e04018p-5f, -0x1.6804fp-6f, -0x1.0abc4p-7f, -0x1.dda4f8p-10f,
       -0x1.02c66ep-12f, -0x1.1833f6p-15f, -0x1.2f5fcp-18f, -0x1.e33ff6p-23f, -0x1.9780f8p-26f, 0,
       0, 0, -0x1.10ac36p-6f, -0x1.205c32p-4f, -0x1.5e6738p-3f},
      {0x1.1f24a4p-2f, 0x1.d22c48p-4f, 0x1.641052p-5f, 0x1.09a658p-6f, 0x1.dd37fep-9f,
       0x1.02bfbap-11f, 0x1.183462p-14f, 0x1.2f6156p-17f, 0x1.e40ca6p-22f, 0x1.9780f8p-25f, 0, 0,
       0x1.6e4326p-28f, -0x1.07012p-3f, -0x1.3af692p-2f, -0x1.fb6044p-2f},
      {-0x1.e72892p-3f, -0x1.b6d80ep-4f, -0x1.5c3d5ep-5f, -0x1.077cc2p-6f, -0x1.dc58e6p-9f,
       -0x1.02af2ep-11f, -0x1.1831dcp-14f, -0x1.2f60cep-17f, -0x1.e3f812p-22f, -0x1.9780ecp-25f, 0,
       0, -0x1.a1ef0ep-20f, -0x1.3fd554p-2f, -0x1.893b5ep-2f, -0x1.6ba7acp-2f},
      {0x1.bbb462p-4f, 0x1.01c0dcp-4f, 0x1.bbce8ap-6f, 0x1.599252p-7f, 0x1.3c1ab8p-9f,
       0x1.585fc8p-12f, 0x1.7529dap-15f, 0x1.940fa6p-18f, 0x1.3c4cb4p-22f, 0x1.0faacep-25f, 0, 0,
       -0x1.5541fep-2f, -0x1.6dc62p-3f, -0x1.243736p-6f, 0x1.4f1442p-4f},
      {-0x1.9c53fp-7f, -0x1.81693cp-6f, -0x1.93c7bap-7f, -0x1.4e38aap-8f, -0x1.39d96cp-10f,
       -0x1.581162p-13f, -0x1.75233p-16f, -0x1.941582p-19f, -0x1.3cba7p-23f, -0x1.0fb99p-26f, 0, 0,
       -0x1.504d66p-10f, 0x1.584b78p-3f, 0x1.1a6cc2p-3f, 0x1.f204b8p-5f},
      {-0x1.42b03ep-6f, 0x1.c892cep-9f, 0x1.04886ep-8f, 0x1.f62ae8p-10f, 0x1.0116e8p-11f,
       0x1.1e7b98p-14f, 0x1.375ee2p-17f, 0x1.514c62p-20f, 0x1.2fe8b8p-24f, 0x1.b42facp-28f, 0, 0,
       0x1.25dbfcp-3f, 0x1.370dd8p-6f, -0x1.bded5ep-5f, -0x1.e0079ap-5f},
      {0x1.edce48p-7f, 0x1.1225d4p-9f, -0x1.7c417ap-11f, -0x1.1e811ep-11f, -0x1.4af836p-13f,
       -0x1.7bae44p-16f, -0x1.9e65c8p-19f, -0x1.c10d02p-22f, -0x1.92ecp-26f, -0x1.0fbbb4p-29f, 0, 0,
       -0x1.33bf08p-5f, -0x1.1b560cp-4f, -0x1.8f8c58p-6f, 0x1.a9d38ep-7f},
  };
  return values;
}
/// erf(a) - min(a, 1): see piece_of.
POTL_INLINE const float (&erf_table())[8][16] {
  static constexpr float values[8][16] = {
      {0x1.400032p+0f, 0x1.c0007ap+0f, 0x1.20002cp+1f, 0x1.60005cp+1f, 0x1.c00012p+1f, 0, 0, 0, 0,
       0, 0, 0, 0, 0x1.800064p-2f, 0x1.400018p-1f, 0x1.c0004ep-1f},
      {-0x1.3bcc56p-4f, -0x1.b4bae8p-7f, -0x1.7f6ecp-10f, -0x1.a6030ap-14f, -0x1.8db9d8p-21f, 0, 0,
       0, 0, 0, 0, 0, 0, 0x1.dd0d0cp-6f, -0x1.cd2fcp-10f, -0x1.746edep-4f},
      {0x1.e4644ep-3f, 0x1.b0520cp-5f, 0x1.d41116p-8f, 0x1.335e56p-11f, 0x1.71d8c6p-18f, 0, 0, 0, 0,
       0, 0, 0, 0x1.06eba8p-3f, -0x1.41eae4p-6f, -0x1.e45ab6p-3f, -0x1.e6a9cap-2f},
      {-0x1.2ebef8p-2f, -0x1.7a4868p-4f, -0x1.07498cp-6f, -0x1.a69f8ep-10f, -0x1.40d42cp-16f, 0, 0,
       0, 0, 0, 0, 0, -0x1.0f234cp-21f, -0x1.7874dep-2f, -0x1.e8a3ccp-2f, -0x1.d62bcp-2f},
      {0x1.5716d4p-3f, 0x1.715c74p-4f, 0x1.63f7cap-6f, 0x1.69814ep-9f, 0x1.451d32p-15f, 0, 0, 0, 0,
       0, 0, 0, -0x1.811eeap-2f, -0x1.e105c6p-3f, -0x1.c814e8p-5f, 0x1.7c9684p-4f},
      {-0x1.916dc8p-8f, -0x1.8a173cp-5f, -0x1.38c2ecp-6f, -0x1.aaf51ap-9f, -0x1.0c7104p-14f, 0, 0,
       0, 0, 0, 0, 0, -0x1.410bc2p-11f, 0x1.55253cp-3f, 0x1.6963fp-3f, 0x1.cc5e6p-4f},
      {-0x1.7f49d8p-5f, 0x1.8765b4p-8f, 0x1.5aba7cp-7f, 0x1.725f36p-9f, 0x1.cc38c6p-14f, 0, 0, 0, 0,
       0, 0, 0, 0x1.e2eaap-4f, 0x1.736b2ep-5f, -0x1.bb224ep-6f, -0x1.1067fcp-4f},
      {0x1.4ffef6p-6f, 0x1.2918cap-7f, -0x1.6a452p-9f, -0x1.b5921cp-10f, -0x1.9b053ep-14f, 0, 0, 0,
       0, 0, 0, 0, -0x1.372c58p-6f, -0x1.95b92cp-5f, -0x1.51e102p-5f, -0x1.520e56p-7f},
  };
  return values;
}
/// a exp(a^2 / 2) Q(a) - min(a / 2, 1 / 4), Q the tail of the normal distribution: see piece_of.
POTL_INLINE const float (&gelu_table())[8][16] {
  static constexpr float values[8][16] = {
      {0x1.40003ep+0f, 0x1.c0007cp+0f, 0x1.20003ep+1f, 0x1.600032p+1f, 0x1.c00066p+1f,
       0x1.200078p+2f, 0x1.600016p+2f, 0x1.a0006ap+2f, 0x1.000012p+3f, 0x1.40001p+3f,
       0x1.80005ep+3f, 0x1.b8006ep+3f, 0, 0x1.80001p-2f, 0x1.400032p-1f, 0x1.c00036p-1f},
      {0x1.3afd0ep-5f, 0x1.2fbe02p-4f, 0x1.880eaap-4f, 0x1.c07be4p-4f, 0x1.f49094p-4f,
       0x1.0d8c68p-3f, 0x1.185714p-3f, 0x1.1eedc6p-3f, 0x1.24d2e6p-3f, 0x1.2918dcp-3f,
       0x1.2b796ap-3f, 0x1.2cc776p-3f, 0, -0x1.71db0ap-5f, -0x1.8869fap-5f, -0x1.54d236p-8f},
      {0x1.7b796cp-4f, 0x1.bd451ep-5f, 0x1.15a9f4p-5f, 0x1.6c5dccp-6f, 0x1.a29e2ep-7f,
       0x1.bfb912p-8f, 0x1.07e3bcp-8f, 0x1.4ea41cp-9f, 0x1.76259ep-10f, 0x1.8af20cp-11f,
       0x1.d0fa16p-12f, 0x1.3800dp-12f, -0x1.1292aap-30f, -0x1.bba1c6p-3f, 0x1.9a457cp-3f,
       0x1.28bec6p-3f},
      {-0x1.aecd74p-5f, -0x1.be1368p-6f, -0x1.ee9746p-7f, -0x1.22a8bap-7f, -0x1.1ee0dcp-8f,
       -0x1.004bap-9f, -0x1.01ffaep-10f, -0x1.1c8792p-11f, -0x1.09268ap-12f, -0x1.c87fdp-14f,
       -0x1.c4c9ecp-15f, -0x1.0ac67p-15f, -0x1.98844p-2f, -0x1.a0ada4p-3f, -0x1.12ed58p-3f,
       -0x1.73b764p-4f},
      {0x1.8fec9ep-6f, 0x1.721aaep-7f, 0x1.70c2f2p-8f, 0x1.87b358p-9f, 0x1.4fa492p-10f,
       0x1.fa2c46p-12f, 0x1.b6421ap-13f, 0x1.a66ff4p-14f, 0x1.49b53ep-15f, 0x1.d0de3ap-17f,
       0x1.857bbcp-18f, 0x1.9391eep-19f, 0x1.fff906p-3f, 0x1.dc328cp-4f, 0x1.27b884p-4f,
       0x1.78a9cep-5f},
      {-0x1.4467a2p-7f, -0x1.0ee4f2p-8f, -0x1.e92702p-10f, -0x1.d924e4p-11f, -0x1.62f98ep-12f,
       -0x1.c7c292p-14f, -0x1.55403p-15f, -0x1.20016ap-16f, -0x1.7bb77p-18f, -0x1.b81718p-20f,
       -0x1.3a8bbap-21f, -0x1.256434p-22f, -0x1.0fe0c8p-3f, -0x1.d250dp-5f, -0x1.122b54p-5f,
       -0x1.4ad27cp-6f},
      {0x1.e0f6b2p-9f, 0x1.6c50dcp-10f, 0x1.2b55f4p-11f, 0x1.098226p-12f, 0x1.645ce4p-14f,
       0x1.8630e8p-16f, 0x1.f90ad6p-18f, 0x1.787c8ep-19f, 0x1.aad346p-21f, 0x1.9479p-23f,
       0x1.e10c7cp-25f, 0x1.817894p-26f, 0x1.f15a4cp-5f, 0x1.976abcp-6f, 0x1.c65154p-7f,
       0x1.03ceep-7f},
      {-0x1.460388p-10f, -0x1.c3cea4p-12f, -0x1.54acc4p-13f, -0x1.05145ep-14f, -0x1.4afa9ap-16f,
       -0x1.38ac88p-18f, -0x1.747972p-20f, -0x1.3cfe12p-21f, -0x1.c14adap-24f, -0x1.5fa25ep-26f,
       -0x1.43128ap-29f, 0x1.06af2ap-27f, -0x1.4673a4p-6f, -0x1.3fc1fp-7f, -0x1.567d2p-8f,
       -0x1.7f0526p-9f},
  };
  return values;
}

}  // namespace in_float
}  // namespace
}  // namespace potl::numeric::elementwise
