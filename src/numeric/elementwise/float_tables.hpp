// SPDX-License-Identifier: Apache-2.0
// Tables of float_functions.hpp.
#pragma once

#include "lanes.hpp"

namespace potl::numeric::elementwise {
namespace {
namespace in_float {

/// 2^(k / 16) (1 + d) with a d for which all 16 are almost exact.
POTL_INLINE const float (&exp_table())[16] {
  static constexpr float values[16] = {
      0x1.019b94p+0f, 0x1.0d0354p+0f, 0x1.18ec58p+0f, 0x1.255c5ap+0f,
      0x1.325954p+0f, 0x1.3fe984p+0f, 0x1.4e136ep+0f, 0x1.5cddep+0f,
      0x1.6c4ff6p+0f, 0x1.7c711cp+0f, 0x1.8d4912p+0f, 0x1.9edffp+0f,
      0x1.b13e2ap+0f, 0x1.c46c94p+0f, 0x1.d87464p+0f, 0x1.ed5f3cp+0f};
  return values;
}
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
/// tanh(a) - min(a, tanh_knee): see piece_of.
inline constexpr double tanh_scale = 1.625;
inline constexpr double tanh_knee = 0x1.d89d88p-1;
POTL_INLINE const float (&tanh_table())[7][16] {
  static constexpr float values[7][16] = {
      {0x1.89d8f2p-1f, 0x1.13b15ap+0f, 0x1.627672p+0f, 0x1.b13b7cp+0f, 0x1.13b17ap+1f,
       0x1.62762ap+1f, 0x1.b13b5cp+1f, 0x1.00005ap+2f, 0x1.3b13b6p+2f, 0x1.89d91cp+2f,
       0x1.d89e08p+2f, 0x1.1051ecp+3f, 0, 0x1.d89da4p-3f, 0x1.89d8a4p-2f, 0x1.13b144p-1f},
      {-0x1.f6c896p-4f, -0x1.0c54aep-3f, -0x1.50a718p-5f, 0x1.7463bap-7f, 0x1.9c7c08p-5f,
       0x1.1afcd8p-4f, 0x1.31adcep-4f, 0x1.38548p-4f, 0x1.3aa4b2p-4f, 0x1.3b0a46p-4f,
       0x1.3b12f2p-4f, 0x1.3b13aap-4f, 0, -0x1.06ded4p-8f, -0x1.25612p-6f, -0x1.7e113cp-5f},
      {-0x1.abf8aap-2f, 0x1.7d9744p-2f, 0x1.c6e0d4p-3f, 0x1.03b9ecp-3f, 0x1.ad8e2ap-5f,
       0x1.ff6b74p-7f, 0x1.2c65acp-8f, 0x1.5f81f4p-10f, 0x1.bc30ep-13f, 0x1.2f19c6p-16f,
       0x1.9db15cp-20f, 0x1.5c9378p-23f, -0x1.1ade7cp-28f, -0x1.a53a2cp-5f, -0x1.1367e4p-3f,
       -0x1.ef63dp-3f},
      {-0x1.8152acp-2f, -0x1.2e401p-2f, -0x1.913366p-3f, -0x1.e566c2p-4f, -0x1.a21e2ep-5f,
       -0x1.fb532ep-7f, -0x1.2ba04p-8f, -0x1.5f3646p-10f, -0x1.ba785cp-13f, -0x1.2cb05ap-16f,
       -0x1.ae18b4p-20f, -0x1.279b6cp-23f, 0x1.4e25bep-20f, -0x1.b884eap-3f, -0x1.45031ap-2f,
       -0x1.7dcdcap-2f},
      {0x1.935a8ep-5f, 0x1.c0cb82p-4f, 0x1.94740ep-4f, 0x1.186e78p-4f, 0x1.07de52p-5f,
       0x1.4ceffp-7f, 0x1.8dc2d2p-9f, 0x1.d3a672p-11f, 0x1.2702bep-13f, 0x1.93b68ap-17f,
       0x1.13623ap-20f, 0x1.d076a2p-24f, -0x1.5564fp-2f, -0x1.11d722p-2f, -0x1.60818ep-3f,
       -0x1.1bf504p-4f},
      {0x1.7f8e0ep-4f, 0x1.96c36ep-7f, -0x1.5ee32cp-6f, -0x1.8f53a4p-6f, -0x1.d89732p-7f,
       -0x1.4761ap-8f, -0x1.922edp-10f, -0x1.da9786p-12f, -0x1.3ec3e6p-14f, -0x1.c2682p-18f,
       -0x1.977df4p-22f, -0x1.433e9cp-23f, 0x1.f2b04ap-11f, 0x1.0dd168p-3f, 0x1.58cb8ap-3f,
       0x1.43aac2p-3f},
      {-0x1.02be08p-4f, -0x1.34098ep-5f, -0x1.26da92p-7f, 0x1.68b504p-9f, 0x1.1c41fap-8f,
       0x1.e75608p-10f, 0x1.384b5p-11f, 0x1.797ac6p-13f, 0x1.fbd758p-16f, 0x1.537962p-19f,
       0x1.d1da28p-23f, 0x1.81d394p-26f, 0x1.064b4p-3f, 0x1.4a7478p-4f, 0x1.fc97b4p-7f,
       -0x1.33876cp-5f}};
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
/// q, which is Q(k / 8), but 0 beside the extremum of u Q(u); the polynomial in t of u (Q(u) - q),
/// u = k / 8 + t.
POTL_INLINE const float (&normal_table())[7][32] {
  static constexpr float values[7][32] = {
      {0x1p-1f,
       0x1.cd116cp-2f,
       0x1.9aecbap-2f,
       0x1.6a527ap-2f,
       0x1.3bf144p-2f,
       0x1.105e82p-2f,
       0,
       0x1.86bb5p-3f,
       0x1.44ed0cp-3f,
       0x1.0ad7dap-3f,
       0x1.b0bdd2p-4f,
       0x1.5a6196p-4f,
       0x1.11a46ep-4f,
       0x1.aaa65cp-5f,
       0x1.482a24p-5f,
       0x1.f20394p-6f,
       0x1.74bcf8p-6f,
       0x1.13243cp-6f,
       0x1.90925p-7f,
       0x1.1f85a2p-7f,
       0x1.96f4e6p-8f,
       0x1.1bee6cp-8f,
       0x1.869044p-9f,
       0x1.08c89p-9f,
       0x1.61de2p-10f,
       0x1.d21af4p-11f,
       0x1.2e86fep-11f,
       0x1.8301bep-12f,
       0x1.e7dbcap-13f,
       0x1.2eff8p-13f,
       0x1.72d956p-14f,
       0x1.bf3766p-15f},
      {0,
       0x1.cd4f1ep-32f,
       0x1.383b8p-29f,
       -0x1.7de056p-28f,
       -0x1.1a1ep-29f,
       0x1.bcb606p-28f,
       0x1.5c198p-3f,
       -0x1.2557f2p-28f,
       -0x1.1f471ep-29f,
       0x1.1fcfd8p-31f,
       -0x1.08903cp-28f,
       0x1.56e6eap-30f,
       -0x1.629318p-29f,
       -0x1.0b648ep-34f,
       0x1.20cd0cp-32f,
       0x1.bc3e94p-30f,
       0x1.64068cp-32f,
       -0x1.124d34p-30f,
       -0x1.f5af4ap-31f,
       -0x1.05f23cp-32f,
       -0x1.483ae6p-32f,
       0x1.11ddb8p-36f,
       -0x1.fa9494p-33f,
       0x1.4af95p-32f,
       -0x1.3d3346p-34f,
       0x1.0c12aap-34f,
       -0x1.ada1bp-35f,
       0x1.afb8cp-37f,
       -0x1.7243ecp-36f,
       -0x1.aa1b34p-38f,
       0x1.2da1c2p-38f,
       0x1.bf979ap-40f},
      {0,
       -0x1.955678p-5f,
       -0x1.8bf2b8p-4f,
       -0x1.1d95b2p-3f,
       -0x1.6883dp-3f,
       -0x1.a40bc8p-3f,
       0x1.95f1dep-11f,
       -0x1.e785c6p-3f,
       -0x1.ef8e5ap-3f,
       -0x1.e829eep-3f,
       -0x1.d394e8p-3f,
       -0x1.b483b8p-3f,
       -0x1.8de0c8p-3f,
       -0x1.628f32p-3f,
       -0x1.3537c8p-3f,
       -0x1.0823a8p-3f,
       -0x1.ba4b44p-4f,
       -0x1.6b23b4p-4f,
       -0x1.24833cp-4f,
       -0x1.ce819p-5f,
       -0x1.66fac6p-5f,
       -0x1.119eecp-5f,
       -0x1.99b834p-6f,
       -0x1.2d6086p-6f,
       -0x1.b3ab1ep-7f,
       -0x1.357aaep-7f,
       -0x1.b02bc6p-8f,
       -0x1.28a25p-8f,
       -0x1.90584ep-9f,
       -0x1.09a158p-9f,
       -0x1.5a9d9cp-10f,
       -0x1.bcc8f8p-11f},
      {-0x1.988452p-2f, -0x1.922bc8p-2f, -0x1.7f9322p-2f, -0x1.62018ap-2f, -0x1.3b7354p-2f,
       -0x1.0e6796p-2f, -0x1.bb4436p-3f, -0x1.57e0aap-3f, -0x1.ef8e62p-4f, -0x1.3ea9a4p-4f,
       -0x1.474ecp-5f,  -0x1.15c89p-7f,  0x1.09406p-6f,   0x1.178e62p-5f,  0x1.777a8cp-5f,
       0x1.ab066cp-5f,  0x1.ba4b46p-5f,  0x1.ade4a4p-5f,  0x1.8e246ep-5f,  0x1.627c9ap-5f,
       0x1.3121fap-5f,  0x1.fdc82p-6f,   0x1.9e6026p-6f,  0x1.48671ep-6f,  0x1.fc47bp-7f,
       0x1.80872cp-7f,  0x1.1ca6bp-7f,   0x1.9cadaap-8f,  0x1.251c14p-8f,  0x1.982d6ap-9f,
       0x1.16bc92p-9f,  0x1.757e7p-10f},
      {-0x1.4edb6p-19f, 0x1.0d2bdep-5f,  0x1.03d81cp-4f,  0x1.6f66aap-4f,  0x1.c29f4p-4f,
       0x1.f95f3p-4f,   0x1.09003ep-3f,  0x1.06ca56p-3f,  0x1.ef9474p-4f,  0x1.bcefacp-4f,
       0x1.7be9p-4f,    0x1.32e6e8p-4f,  0x1.d02b6cp-5f,  0x1.4151f8p-5f,  0x1.82675cp-6f,
       0x1.54f0cep-7f,  0x1.34394p-19f,  -0x1.f330dp-8f,  -0x1.9e623cp-7f, -0x1.f9dd8cp-7f,
       -0x1.0d40fep-6f, -0x1.07aabp-6f,  -0x1.e68ebp-7f,  -0x1.ac8abcp-7f, -0x1.6b0ea2p-7f,
       -0x1.2964bp-7f,  -0x1.d8b32ap-8f, -0x1.6d6358p-8f, -0x1.133be4p-8f, -0x1.94ad82p-9f,
       -0x1.22a6aep-9f, -0x1.9848eap-10f},
      {0x1.10c646p-4f,   0x1.06a4a6p-4f,  0x1.d667d8p-5f,  0x1.810978p-5f,  0x1.15bc4cp-5f,
       0x1.3dac6p-6f,    0x1.f04706p-9f,  -0x1.1e5f12p-7f, -0x1.49ec3cp-6f, -0x1.d69932p-6f,
       -0x1.17fcfp-5f,   -0x1.2b3592p-5f, -0x1.277036p-5f, -0x1.10fdeep-5f, -0x1.da65c4p-6f,
       -0x1.8342f4p-6f,  -0x1.26eaa2p-6f, -0x1.9b7194p-7f, -0x1.f8130ap-8f, -0x1.ddafb2p-9f,
       -0x1.0b8622p-11f, 0x1.c148aap-10f, 0x1.990476p-9f,  0x1.f8ae64p-9f,  0x1.09f484p-8f,
       0x1.ff80bp-9f,    0x1.cd2df4p-9f,  0x1.8b9264p-9f,  0x1.459918p-9f,  0x1.02abdcp-9f,
       0x1.8e20bep-10f,  0x1.29715ap-10f},
      {-0x1.c8a484p-10f, -0x1.e109dep-8f,  -0x1.cc011ep-7f, -0x1.3f31c6p-6f,  -0x1.5e2b54p-6f,
       -0x1.86f2dcp-6f,  -0x1.75d69cp-6f,  -0x1.327a0cp-6f, -0x1.1a3e2ap-6f,  -0x1.6b27bp-7f,
       -0x1.95c8bap-8f,  -0x1.469a56p-12f, 0x1.a67748p-9f,  0x1.7fc826p-8f,   0x1.334e26p-7f,
       0x1.53d00ap-7f,   0x1.17a6a4p-7f,   0x1.0438e4p-7f,  0x1.d2d36ap-8f,   0x1.78cd32p-8f,
       0x1.253c54p-8f,   0x1.977d86p-9f,   0x1.c9eafep-10f, 0x1.aea768p-11f,  0x1.20c31ap-20f,
       -0x1.d9f23ep-12f, -0x1.6ed1b6p-11f, -0x1.b7915p-11f, -0x1.c0c246p-11f, -0x1.931114p-11f,
       -0x1.60fc42p-11f, -0x1.2ba2ap-11f}};
  return values;
}

}  // namespace in_float
}  // namespace
}  // namespace potl::numeric::elementwise
