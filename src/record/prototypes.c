/* SPDX-License-Identifier: MIT */
/*
 * prototypes.tsv: what the functions take and give that have values in the trace, from debug information. Written when
 * the process is gone or detached. Lists of constants come before the functions that use them, each text once.
 */
#include "record/modules.h"

#include "target/prototypes.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 64 << 20, CONSTANTS_MAX = 1 << 20 };

struct constants {
  char *text; /* as in the line */
  uint32_t number;
};

struct writing {
  FILE *out;
  void *known; /* tsearch: struct constants by text */
  uint32_t constants_count;
  const uint32_t *ids; /* of the functions that are asked about */
};

static int
by_text(const void *a, const void *b)
{
  const struct constants *x = a, *y = b;
  return strcmp(x->text, y->text);
}

static char *
constants_text(const struct ct_constant *list, uint32_t count)
{
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  if (out == NULL) {
    return NULL;
  }
  for (uint32_t i = 0; i < count; i++) {
    putc_unlocked('\t', out);
    ct_prototype_put_name(out, list[i].name, true);
    fprintf(out, "=%lld", (long long)list[i].value);
  }
  if (fclose(out) != 0) {
    free(text);
    return NULL;
  }
  return text;
}

static bool
is_full(struct writing *writing)
{
  return writing->constants_count >= CONSTANTS_MAX || ftello(writing->out) > TEXT_BYTES_MAX;
}

static uint32_t
put_constants(void *arg, const struct ct_constant *list, uint32_t count)
{
  struct writing *writing = arg;
  struct constants *entry = calloc(1, sizeof(*entry));
  struct constants **found;
  if (entry == NULL || is_full(writing) || (entry->text = constants_text(list, count)) == NULL ||
      (found = tsearch(entry, &writing->known, by_text)) == NULL) {
    free(entry != NULL ? entry->text : NULL);
    free(entry);
    return 0;
  }
  if (*found != entry) {
    free(entry->text);
    free(entry);
    return (*found)->number;
  }
  entry->number = ++writing->constants_count;
  fprintf(writing->out, "e\t%u%s\n", entry->number, entry->text);
  return entry->number;
}

static void
put_prototype(void *arg, size_t index, const struct ct_prototype *prototype)
{
  struct writing *writing = arg;
  if (!is_full(writing)) {
    fprintf(writing->out, "f\t%u\t", writing->ids[index]);
    ct_prototype_write(writing->out, prototype);
    putc_unlocked('\n', writing->out);
  }
}

static void
free_constants(void *entry)
{
  free(((struct constants *)entry)->text);
  free(entry);
}

/* The functions of a module that have values in the trace; plan's functions are sorted by address, and ids with them.
 */
static int
write_module(struct writing *writing, const struct ct_module *module, const struct ct_trace_writer *writer)
{
  const struct ct_plan *plan = module->known_plan;
  uint32_t *ids = reallocarray(NULL, plan->count + 1, sizeof(*ids));
  struct ct_prototype_wanted *wanted = reallocarray(NULL, plan->count + 1, sizeof(*wanted));
  size_t count = 0;
  uint32_t fn = module->first_fn;
  int code = ids == NULL || wanted == NULL ? CT_ENOMEM : 0;
  for (size_t i = 0; i < plan->count && code == 0; i++) {
    if (plan->functions[i].refusal == CT_REFUSED_NOT) {
      if (ct_trace_writer_has_values(writer, fn)) {
        ids[count] = fn;
        wanted[count++] = (struct ct_prototype_wanted){plan->functions[i].address, plan->functions[i].name};
      }
      fn++;
    }
  }
  if (code == 0 && count != 0) {
    struct ct_prototype_sink sink = {writing, put_constants, put_prototype};
    writing->ids = ids;
    code = ct_prototypes_read(plan->elf, wanted, count, &sink);
    ct_elf_drop_pages(plan->elf);
  }
  free(ids);
  free(wanted);
  return code == CT_ENOENT ? 0 : code;
}

int
ct_modules_write_prototypes(const struct ct_modules *modules, struct ct_trace_writer *writer)
{
  char *text = NULL;
  size_t size = 0;
  struct writing writing = {.out = open_memstream(&text, &size)};
  int code = writing.out == NULL ? CT_ENOMEM : 0;
  for (size_t i = 0; i < modules->count && code == 0; i++) {
    if (modules->items[i].known_plan != NULL) {
      ct_plans_lock(modules->plans); /* their files are open for one at a time */
      code = write_module(&writing, &modules->items[i], writer);
      ct_plans_unlock(modules->plans);
    }
  }
  tdestroy(writing.known, free_constants);
  if (writing.out != NULL && fclose(writing.out) != 0) {
    code = CT_ENOMEM;
  }
  if (code == 0 && size != 0) {
    code = ct_trace_writer_prototypes(writer, text, size);
  }
  free(text);
  return code;
}
