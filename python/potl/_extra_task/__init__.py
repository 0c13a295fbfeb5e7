# SPDX-License-Identifier: Apache-2.0
"""Secret samples in the data that a converged model has learned.

`ExtraTask` (`_extra_task`) is composed of parts, each of which uses only those above it:

key        `_key`: the secret on disk, and the file beside it
form       `_form`: how the data look. `_data` reads containers and `_items` what an item holds;
           `_images`, `_texts` and `_tables` make inputs of generated values
design     `_design`: form and options, which determine every sample together with the key
samples    `_samples`: generates the samples
questions  `_questions`: asks a model in a secret order; `_outputs` reads what it returned
judgement  `_judgement`: verdicts and submissions (`_submissions`), as values (`_result`)

Beside it: data in files (`_files`), questions and answers in files (`_question_files`), the search
for samples in a run's data (`_uploaded`), and a cloud that cheats (`_audit`).
"""
