// SPDX-License-Identifier: Apache-2.0
#include "core/counted.hpp"
#include "evidence/audit.hpp"

namespace potl::transcript {
namespace {

// With a commitment the prover has declared the run complete; without one it may still be going on.
void unfinished(const audit_input& in, audit_log& log, std::string_view broken,
                std::string reason) {
  if (in.commitment) {
    log.reject(broken, std::move(reason));
  } else {
    log.inconclusive(broken, std::move(reason));
  }
}

void audit_chain(const audit_input& in, audit_log& log) {
  const history& run = in.run;
  const auto wrong = [&](std::string reason) { log.reject("transcript.chain", std::move(reason)); };
  const std::string where = "after " + counted(run.records, "record") + " ";
  if (run.tail == log_tail::damage) {
    wrong(where + "the log is damaged: " + run.tail_problem);
  } else if (run.tail == log_tail::torn) {
    unfinished(in, log, "transcript.chain", where + "the log breaks off: " + run.tail_problem);
  }
  if (in.commitment) {
    const std::string why = "; the log was changed, or the commitment is that of another run";
    const checkpoint_note& note = in.commitment->note.note;
    if (note.size != run.records) {
      wrong("the commitment covers " + counted(note.size, "record") + ", the log has " +
            std::to_string(run.records) + why);
    } else if (note.root != run.root) {
      wrong("the records do not hash to the committed root" + why);
    }
    if (in.commitment->final_state && run.close &&
        *in.commitment->final_state != run.close->state) {
      wrong("the commitment names another final state than the close record");
    }
  }
  log.pass("transcript.chain", "the log of " + counted(run.records, "record") + " is intact" +
                                   (in.commitment ? " and hashes to the committed root" : ""));
}

void audit_sequence(const audit_input& in, audit_log& log) {
  const history& run = in.run;
  for (const anomaly& one : run.anomalies) {
    if (one.rule == "transcript.sequence") log.reject(one.rule, one.reason, one.step);
  }
  const auto check_epoch = [&](const step_record& one) {
    if (one.step == 0 || one.step > in.agreed.steps) return;
    const std::uint64_t epoch = in.agreed.epoch_of(one.step);
    if (one.epoch == epoch) return;
    log.reject("transcript.sequence",
               "step " + std::to_string(one.step) + " belongs to epoch " + std::to_string(epoch) +
                   ", not " + std::to_string(one.epoch),
               one.step);
  };
  for (const step_record& one : run.steps) check_epoch(one);
  for (const step_record& one : run.superseded) check_epoch(one);
  if (!run.close) unfinished(in, log, "transcript.sequence", "the run is not closed");
  log.pass("transcript.sequence",
           counted(run.steps.size(), "step") + " in order, without gap or repetition");
}

void audit_step_count(const audit_input& in, audit_log& log) {
  const std::uint64_t last = in.run.last_step();
  if (last != in.agreed.steps) {
    unfinished(in, log, "agreed.step_count",
               "the run ends at step " + std::to_string(last) + " of " +
                   std::to_string(in.agreed.steps) + " agreed");
  }
  log.pass("agreed.step_count", "the run has the agreed " + counted(in.agreed.steps, "step"));
}

void audit_resumes(const audit_input& in, audit_log& log) {
  const history& run = in.run;
  for (const anomaly& one : run.anomalies) {
    if (one.rule == "transcript.resume") log.reject(one.rule, one.reason, one.step);
  }
  if (run.resumes.size() > in.agreed.max_resumes) {
    log.reject("transcript.resume", "the run was resumed " + counted(run.resumes.size(), "time") +
                                        "; the job allows at most " +
                                        std::to_string(in.agreed.max_resumes));
  }
  if (run.superseded.size() > in.agreed.max_superseded) {
    log.reject("transcript.resume", counted(run.superseded.size(), "superseded step") +
                                        "; the job allows at most " +
                                        std::to_string(in.agreed.max_superseded));
  }
  log.pass("transcript.resume", counted(run.resumes.size(), "resume") + ", " +
                                    counted(run.superseded.size(), "superseded step"));
}

}  // namespace

void audit_structure(const audit_input& in, audit_log& log) {
  audit_chain(in, log);
  audit_sequence(in, log);
  audit_step_count(in, log);
  audit_resumes(in, log);
}

}  // namespace potl::transcript
