// SPDX-License-Identifier: Apache-2.0
#include "core/counted.hpp"
#include "evidence/audit.hpp"

namespace potl::transcript {
namespace {

void audit_job(const audit_input& in, audit_log& log) {
  const digest id = in.agreed.id();
  const auto wrong = [&](const std::string& reason) { log.reject("agreed.job", reason); };
  if (in.run.header && in.run.header->job_id != id) {
    wrong("the run was recorded for job " + in.run.header->job_id.hex() + ", agreed was " +
          id.hex());
  }
  for (const anomaly& one : in.run.anomalies) {
    if (one.rule == "agreed.job") log.reject(one.rule, one.reason, one.step);
  }
  if (in.commitment && in.commitment->job_id != id) {
    wrong("the commitment is for job " + in.commitment->job_id.hex() + ", agreed was " + id.hex());
  }
  if (!in.job_is_own) {
    log.note("no job of the verifier's own was given: what was agreed is only the prover's word");
  }
  log.pass("agreed.job", "all records name job " + id.hex());
}

void audit_key(const audit_input& in, audit_log& log) {
  constexpr std::string_view rule = "agreed.trainer_key";
  if (in.agreed.trainer && in.run.header && in.run.header->trainer != *in.agreed.trainer) {
    log.reject(rule, "the run was recorded with another key than the one that the job pins");
  }
  if (!in.agreed.trainer) log.note("the job pins no key: who trained is not proven");
  if (!in.commitment) {
    log.note("no commitment was given: the prover can still change its story");
    return;
  }
  if (!in.key || !verify_note(in.commitment->note, *in.key)) {
    // With the rule off the prover's own key is good enough, but it must have signed.
    log.reject(in_force(rule) ? rule : "transcript.chain",
               "the commitment is not signed with the trainer's key");
  }
  log.pass(rule, in.agreed.trainer ? "the commitment is signed with the key that the job pins"
                                   : "the commitment is signed with the key of the run's header");
}

}  // namespace

void audit_identity(const audit_input& in, audit_log& log) {
  audit_job(in, log);
  audit_key(in, log);
}

void audit_history(const audit_input& in, audit_log& log) {
  constexpr std::string_view rule = "transcript.history";
  const digest id = in.agreed.id();
  std::size_t extended = 0;
  for (const run_note& one : in.published) {
    const checkpoint_note& note = one.note.note;
    const std::string which = "the note published over " + counted(note.size, "record") + " ";
    if (one.job_id != id && in_force("agreed.job")) {
      log.inconclusive(rule, which + "is for another job");
    } else if (!in.key || !verify_note(one.note, *in.key)) {
      log.inconclusive(rule, which + "is not signed with the trainer's key");
    } else if (const auto root = in.run.roots.find(note.size);
               root == in.run.roots.end() || root->second != note.root) {
      log.reject(rule, which + "is not extended by the log");
    } else {
      ++extended;
    }
  }
  audit_others(in, log);
  if (in.commitment && !in.commitment->final_state) {
    log.reject(rule, "what was given as commitment is a note of a run that was still going on");
  }
  log.pass(rule, "no second commitment; the log extends " + counted(extended, "published root"));
}

void audit_others(const audit_input& in, audit_log& log) {
  constexpr std::string_view rule = "transcript.history";
  const digest id = in.agreed.id();
  // Without a commitment the first of the others is no second one.
  const checkpoint_note* first = in.commitment ? &in.commitment->note.note : nullptr;
  for (const run_note& one : in.others) {
    const bool signed_too = in.key && verify_note(one.note, *in.key);
    const bool differs = !in.commitment || one.note.note != in.commitment->note.note;
    if (!in.agreed.trainer && one.job_id == id && one.final_state && !signed_too && differs) {
      // With a new key for every attempt, a prover could ask for another draw until it passes.
      log.inconclusive(rule,
                       "a commitment with another key was shown for this job, which pins no key: "
                       "one attempt of many proves nothing; pin the trainer's key in the job");
    } else if (one.job_id != id || !one.final_state || !signed_too) {
      log.note("another note that was given is not a commitment of this trainer for this job");
    } else if (first == nullptr) {
      first = &one.note.note;
    } else if (one.note.note != *first) {
      log.reject(rule, "the trainer signed two different commitments for this job");
    }
  }
}

}  // namespace potl::transcript
