/* SPDX-License-Identifier: MIT */
/*
 * The trees of paths of two traces as one: what each path had before and after. Functions are matched as contrail diff
 * matches them (<contrail/diff.h>): by module, whose version does not count, and name; the program by being that; a
 * name without its counterpart by what the compiler did not append, where that is unambiguous.
 *
 * The tree of both is as wide as the wider of the two, path by path: the self of a path there is the larger one, and
 * its total is that and what is below. So what has vanished is in it too.
 */
#ifndef CT_EXPORT_DIFFERENCE_H
#define CT_EXPORT_DIFFERENCE_H

#include "export/sums.h"

/* Of a path, before and after, in the weight that the job asks for: nanoseconds or calls. */
struct ct_change {
  uint64_t self[2], total[2]; /* total: with all below */
  uint64_t calls[2];
};

struct ct_difference {
  struct ct_paths
      paths; /* of both: self_ticks and total_ticks are of the weight; names are those of after, if it has them */
  struct ct_change *changes; /* of each path */
  uint64_t events[2];        /* calls */
};

/*
 * Of job->options->before and job->trace. As ct_export_sums_collect; what it says of the first trace begins with
 * "before:". Results go to ct_difference_destroy, also after a failure.
 */
int ct_difference_collect(const struct ct_export_job *job, struct ct_difference *difference, struct ct_diag *diag);
void ct_difference_destroy(struct ct_difference *difference);

/*
 * The paths of one trace, or of two when the job has a trace before it, for a format that shows either: put is called
 * once with them, and with their changes, which are NULL for one trace. It returns 0 or an error; CT_ENOMEM is
 * reported.
 */
typedef int (*ct_put_paths)(void *arg, struct ct_paths *paths, const struct ct_change *changes);
int ct_difference_put(const struct ct_export_job *job, ct_put_paths put, void *arg, struct ct_diag *diag);

#endif
