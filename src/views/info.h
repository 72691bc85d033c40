/* SPDX-License-Identifier: MIT */
/* Info: what a trace is and how its recording went, as text or JSON. Reads no events. */
#ifndef CT_VIEWS_INFO_H
#define CT_VIEWS_INFO_H

#include "trace/reader.h"

#include <stdio.h>

/* CT_EIO when out cannot be written (errno says why). */
int ct_info_write(struct ct_trace *trace, bool json, FILE *out, struct ct_diag *diag);

#endif
