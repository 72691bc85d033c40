/* SPDX-License-Identifier: MIT */
/*
 * Folded stacks: a line for each path of calls, its functions from the outermost on with ';' between them, a blank, and
 * its weight: nanoseconds of its own (self), calls, or nanoseconds off the processor. What flame graph programs read.
 * Of two traces: the weight before and the weight after, as the programs read that make pictures of a difference.
 */
#include "export/difference.h"
#include "export/out.h"

/* One function of the line. ';' separates, so it is none of a name. */
static void
put_name(struct ct_sink *out, const struct ct_paths *paths, uint32_t path)
{
  ct_out_line(out, ct_paths_name(paths, paths->paths[path].name), ';', ':');
}

struct folded {
  const struct ct_export_job *job;
  struct ct_sink *out;
};

static int
put_lines(void *arg, struct ct_paths *paths, const struct ct_change *changes)
{
  const struct folded *folded = arg;
  const struct ct_export_job *job = folded->job;
  struct ct_sink *out = folded->out;
  uint32_t *line = NULL, depth, room = 0;
  for (uint32_t at = CT_PATH_TOP; (at = ct_paths_next(paths, at, true)) != CT_PATH_NONE;) {
    uint64_t weight = changes != NULL ? changes[at].self[1] : ct_export_weight(job, &paths->paths[at]);
    if (weight == 0 && (changes == NULL || changes[at].self[0] == 0)) {
      continue;
    }
    depth = 0;
    for (uint32_t up = at; up != CT_PATH_TOP; up = paths->paths[up].parent) {
      if (depth == room) {
        room = 2 * room + 64;
        uint32_t *grown = reallocarray(line, room, sizeof(*line));
        if (grown == NULL) {
          free(line);
          return CT_ENOMEM;
        }
        line = grown;
      }
      line[depth++] = up;
    }
    while (depth-- != 0) {
      put_name(out, paths, line[depth]);
      ct_out_byte(out, depth != 0 ? ';' : ' ');
    }
    if (changes != NULL) {
      ct_out_decimal(out, changes[at].self[0]);
      ct_out_byte(out, ' ');
    }
    ct_out_decimal(out, weight);
    ct_out_byte(out, '\n');
  }
  free(line);
  return CT_OK;
}

static int
write_folded(const struct ct_export_job *job, struct ct_sink *out, struct ct_diag *diag)
{
  struct folded folded = {job, out};
  return ct_difference_put(job, put_lines, &folded, diag);
}

static int
write_format(const struct ct_export_job *job, struct ct_diag *diag)
{
  return ct_export_file(job, CT_OUT_PLAIN, write_folded, diag);
}

const struct ct_export_writer ct_export_folded = {
    .format = {.name = "folded",
               .summary = "stacks and their weight, a line each",
               .has_weight = true,
               .takes_filters = true,
               .takes_two = true},
    .write = write_format,
};
