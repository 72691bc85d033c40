/* SPDX-License-Identifier: MIT */
/* What the writers for recordings of instructions share. They know steps, and not traces' readers. */
#ifndef CT_EXPORT_STEPS_H
#define CT_EXPORT_STEPS_H

#include <contrail/export.h>

/* The threads' files that are asked for, and what becomes of them. */
struct ct_export_steps_job {
  const char *recording;
  char *const *files;
  size_t count;
  const struct ct_export_steps_options *options;
  struct ct_export_summary *summary;
};

/* A trace of the calls. */
int ct_export_steps_contrail(const struct ct_export_steps_job *job, struct ct_diag *diag);
/* Which state of the recording a trace of its calls is of: a text, to be freed; NULL: out of memory. */
char *ct_export_steps_state(char *const *files, size_t count);

#endif
