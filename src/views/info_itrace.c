/* SPDX-License-Identifier: MIT */
/* See info_itrace.h; the manifest's list is in docs/format.md. */
#include "views/info_itrace.h"

#include "base/json.h"

#include <contrail/text.h>

enum { SHOWN = 8 };

void
ct_info_put_itrace(const json_t *manifest, FILE *out)
{
  const json_t *asked = json_object_get(manifest, "itrace");
  size_t count = json_array_size(asked);
  char calls[CT_COUNT_CHARS], steps[CT_COUNT_CHARS];
  for (size_t i = 0; i < count && i < SHOWN; i++) {
    const json_t *one = json_array_get(asked, i);
    const char *function = json_string_value(json_object_get(one, "function"));
    uint64_t recorded = ct_json_get(one, "recorded"), cut = ct_json_get(one, "cut"),
             failed = ct_json_get(one, "failed");
    fprintf(out, "%-10s %s call%s of ", i == 0 ? "steps" : "", ct_format_count(calls, recorded),
            recorded == 1 ? "" : "s");
    ct_put_printable(out, function != NULL ? function : "?", SIZE_MAX);
    fprintf(out, " as instructions, %s of them", ct_format_count(steps, ct_json_get(one, "steps")));
    if (cut != 0) {
      fprintf(out, ", %s cut", ct_format_count(calls, cut));
    }
    if (failed != 0) {
      fprintf(out, ", %s FAILED", ct_format_count(calls, failed));
    }
    fputs(ct_json_get(one, "functions") == 0 ? "; no hooked function has that name\n" : "; contrail steps\n", out);
  }
  if (count > SHOWN) {
    fprintf(out, "%-10s ... and %zu more; --json has all\n", "", count - SHOWN);
  }
}
