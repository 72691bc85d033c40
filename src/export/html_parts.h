/* SPDX-License-Identifier: MIT */
/* What the page has beside its calls, as pieces of its stream (html.c). */
#ifndef CT_EXPORT_HTML_PARTS_H
#define CT_EXPORT_HTML_PARTS_H

#include "export/html_stream.h"
#include "export/walk.h"
#include "views/paths.h"

struct ct_html_counts {
  uint64_t away, away_left_out;     /* stretches in which threads did not run */
  uint64_t values, values_left_out; /* calls' arguments, and results */
};

/* Of the thread of the place. 0 or CT_ENOMEM; what cannot be read is not there. */
int ct_html_put_away(struct ct_html_stream *stream, const struct ct_walk_place *place, struct ct_html_counts *counts,
                     struct ct_diag *diag);
int ct_html_put_values(struct ct_html_stream *stream, const struct ct_walk_place *place, struct ct_html_counts *counts,
                       struct ct_diag *diag);
/* The tree of paths, and in *names the names that it counts. 0 or CT_ENOMEM. */
int ct_html_put_paths(struct ct_html_stream *stream, const struct ct_export_job *job, const struct ct_paths *paths,
                      json_t **names);

#endif
