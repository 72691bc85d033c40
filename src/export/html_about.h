/* SPDX-License-Identifier: MIT */
/* What the page knows besides calls: a JSON object in it (html.c). Texts of the target are strings of it. */
#ifndef CT_EXPORT_HTML_ABOUT_H
#define CT_EXPORT_HTML_ABOUT_H

#include "export/out.h"
#include "export/walk.h"

#include <jansson.h>

/* The lines that the program wrote, as many as there is room for, and the crash of each process. 0 or CT_ENOMEM. */
int ct_html_outputs(const struct ct_export_job *job, struct ct_trace *trace, uint32_t pid, json_t *about);
int ct_html_crash(const struct ct_export_job *job, struct ct_trace *trace, uint32_t pid, json_t *about);
/* The object as text that a script element can hold: no '<' is in it, so nothing in it ends the element. */
int ct_html_put_json(struct ct_sink *out, const json_t *json); /* 0 or CT_ENOMEM */

#endif
