/* SPDX-License-Identifier: MIT */
/*
 * sources.tsv: source file and line of the functions of a recording, grouped by file. Written when the process is gone
 * or detached: for modules whose debug information a pattern has asked for, or for all.
 */
#include "record/modules.h"

#include "target/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct located {
  uint32_t file, line, fn;
};

static int
by_file(const void *a, const void *b)
{
  const struct located *x = a, *y = b;
  if (x->file != y->file) {
    return x->file < y->file ? -1 : 1;
  }
  return x->fn < y->fn ? -1 : x->fn > y->fn;
}

static void
write_path(FILE *out, const char *path)
{
  for (; *path != '\0'; path++) {
    putc_unlocked((unsigned char)*path < 0x20 || *path == 0x7f ? '?' : *path, out);
  }
  putc_unlocked('\n', out);
}

/* The functions that have an id: those that have a hook, selected or not. */
static int
write_module(FILE *out, const struct ct_plan *plan, uint32_t first_fn, const struct ct_sources *sources)
{
  struct located *list = reallocarray(NULL, plan->count + 1, sizeof(*list));
  size_t count = 0;
  uint32_t fn = first_fn;
  if (list == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < plan->count; i++) {
    if (plan->functions[i].refusal == CT_REFUSED_NOT) {
      if (sources->functions[i].file != CT_NO_SOURCE) {
        list[count++] = (struct located){sources->functions[i].file, sources->functions[i].line, fn};
      }
      fn++;
    }
  }
  qsort(list, count, sizeof(*list), by_file);
  for (size_t i = 0; i < count; i++) {
    if (i == 0 || list[i].file != list[i - 1].file) {
      write_path(out, sources->files[list[i].file]);
    }
    fprintf(out, "\t%u\t%u\n", list[i].fn, list[i].line);
  }
  free(list);
  return 0;
}

int
ct_modules_write_sources(const struct ct_modules *modules, bool all, struct ct_trace_writer *writer)
{
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  int code = out == NULL ? CT_ENOMEM : 0;
  for (size_t i = 0; i < modules->count && code == 0; i++) {
    const struct ct_module *module = &modules->items[i];
    if (module->known_plan == NULL || (!all && !module->known_plan->sources_read)) {
      continue;
    }
    ct_plans_lock(modules->plans); /* they are read when they are first asked for */
    const struct ct_sources *sources = ct_plan_sources(module->known_plan);
    ct_plans_unlock(modules->plans);
    if (sources != NULL) {
      code = write_module(out, module->known_plan, module->first_fn, sources);
    }
  }
  if (out != NULL && fclose(out) != 0) {
    code = CT_ENOMEM;
  }
  if (code == 0 && size != 0) {
    code = ct_trace_writer_sources(writer, text, size);
  }
  free(text);
  return code;
}
