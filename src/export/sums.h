/* SPDX-License-Identifier: MIT */
/*
 * What formats of sums have in common: the tree of paths (views/paths.h) of all processes and threads that are asked
 * for. Filters choose the calls that are summed up; the paths to them are whole.
 */
#ifndef CT_EXPORT_SUMS_H
#define CT_EXPORT_SUMS_H

#include "export/export.h"
#include "views/paths.h"

#include <stdlib.h>

struct ct_export_sums {
  struct ct_paths paths;
  struct ct_view_reading reading;
};

/* Fills the job's summary and notes. As ct_walk. Results go to ct_export_sums_destroy, also after a failure. */
int ct_export_sums_collect(const struct ct_export_job *job, struct ct_export_sums *sums, struct ct_diag *diag);
void ct_export_sums_destroy(struct ct_export_sums *sums);

/* Of a path itself, in the weight that the job asks for. */
uint64_t ct_export_weight(const struct ct_export_job *job, const struct ct_path *path);
uint64_t ct_export_total_weight(const struct ct_export_job *job, const struct ct_path *path); /* with all below */

#endif
