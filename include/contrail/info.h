/* SPDX-License-Identifier: MIT */
/* Info: what a trace is and how its recording went, as text or JSON. Reads events of a piece only. */
#ifndef CONTRAIL_INFO_H
#define CONTRAIL_INFO_H

#include <contrail/error.h>
#include <contrail/filter.h>
#include <contrail/trace.h>
#include <contrail/view.h>

#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ct_info_options {
  size_t struct_size;
  bool json;                      /* with all modules and threads */
  enum ct_view_time time;         /* of the last calls before a crash */
  const struct ct_filter *filter; /* its threads alone; NULL: all. The piece of time is that of the trace */
};

int ct_info_write(struct ct_trace *trace, const struct ct_info_options *options, FILE *out, struct ct_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
