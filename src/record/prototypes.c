/* SPDX-License-Identifier: MIT */
/*
 * prototypes.tsv: what the functions take and give that have values in the trace, from debug information. Written when
 * the process is gone or detached, and for a dump. Lists of constants come before the functions that use them, each
 * text once. After them what pointers among the values may point to: data that have names, and functions that are not
 * in functions.tsv.
 */
#include "record/modules.h"

#include "base/prototype.h"
#include "target/objects.h"

#include <inttypes.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES_MAX = 64 << 20, CONSTANTS_MAX = 1 << 20, OBJECTS_MAX = 1 << 16 };

struct constants {
  char *text; /* as in the line */
  uint32_t number;
};

struct writing {
  FILE *out;
  void *known; /* tsearch: struct constants by text */
  uint32_t constants_count;
  bool has_values; /* in some function */
  struct ct_prototype prototype;
};

static int
by_text(const void *a, const void *b)
{
  const struct constants *x = a, *y = b;
  return strcmp(x->text, y->text);
}

static bool
is_full(struct writing *writing)
{
  return writing->constants_count >= CONSTANTS_MAX || ftello(writing->out) > TEXT_BYTES_MAX;
}

/* The number of a list in the trace; 0: there is none. */
static uint32_t
put_constants(struct writing *writing, const char *text)
{
  struct constants *entry = calloc(1, sizeof(*entry));
  struct constants **found;
  if (entry == NULL || text == NULL || is_full(writing) || (entry->text = strdup(text)) == NULL ||
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

/* A line of the plan's, with the numbers that constants have in this trace. */
static void
put_prototype(struct writing *writing, const struct ct_plan *plan, uint32_t fn, const char *line)
{
  struct ct_prototype *prototype = &writing->prototype;
  char *text = strdup(line);
  if (text != NULL && !is_full(writing) && ct_prototype_parse(text, prototype)) {
    struct ct_type *type = &prototype->result;
    type->constants_number = put_constants(writing, ct_plan_constants(plan, type->constants_number));
    for (uint32_t i = 0; i < prototype->count; i++) {
      type = &prototype->parameters[i].type;
      type->constants_number = put_constants(writing, ct_plan_constants(plan, type->constants_number));
    }
    fprintf(writing->out, "f\t%u\t", fn);
    ct_prototype_write(writing->out, prototype);
    putc_unlocked('\n', writing->out);
  }
  free(text);
}

static void
free_constants(void *entry)
{
  free(((struct constants *)entry)->text);
  free(entry);
}

/* The functions of a module that have values in the trace. */
static int
write_module(struct writing *writing, const struct ct_prototype_source *source, const struct ct_trace_writer *writer)
{
  const struct ct_plan *plan = source->plan;
  uint8_t *wanted = calloc(plan->count + 1, 1);
  uint32_t fn = source->first_fn;
  size_t count = 0;
  for (size_t i = 0; wanted != NULL && i < plan->count; i++) {
    if (plan->functions[i].refusal == CT_REFUSED_NOT) {
      wanted[i] = ct_trace_writer_has_values(writer, fn++);
      count += wanted[i];
    }
  }
  writing->has_values |= count != 0;
  int code = wanted == NULL ? CT_ENOMEM : count != 0 ? ct_plan_prototypes_read(plan, wanted) : 0;
  fn = source->first_fn;
  for (size_t i = 0; count != 0 && code == 0 && i < plan->count; i++) {
    const char *line = wanted[i] ? ct_plan_prototype(plan, i) : NULL;
    if (line != NULL) {
      put_prototype(writing, plan, fn, line);
    }
    fn += plan->functions[i].refusal == CT_REFUSED_NOT;
  }
  free(wanted);
  return code;
}

/* A name for an address, relative to the module's functions, of which fn is one. */
static void
put_object(struct writing *writing, uint32_t fn, uint64_t address, uint64_t size, const char *name)
{
  if (!is_full(writing)) {
    fprintf(writing->out, "o\t%u\t%" PRIx64 "\t%" PRIu64 "\t", fn, address, size);
    ct_prototype_put_name(writing->out, name, true);
    putc_unlocked('\n', writing->out);
  }
}

static int
write_objects(struct writing *writing, const struct ct_prototype_source *source)
{
  const struct ct_plan *plan = source->plan;
  struct ct_object *objects;
  size_t count, hooks = 0;
  for (size_t i = 0; i < plan->count; i++) {
    hooks += plan->functions[i].refusal == CT_REFUSED_NOT;
  }
  if (hooks == 0) {
    return 0; /* first_fn is another module's */
  }
  for (size_t i = 0; i < plan->count; i++) {
    const struct ct_planned *planned = &plan->functions[i];
    if (planned->refusal != CT_REFUSED_NOT && planned->name != NULL && planned->size != 0) {
      put_object(writing, source->first_fn, planned->address, planned->size, planned->name);
    }
  }
  int code = ct_elf_objects(plan->elf, OBJECTS_MAX, &objects, &count);
  for (size_t i = 0; code == 0 && i < count; i++) {
    put_object(writing, source->first_fn, objects[i].address, objects[i].size, objects[i].name);
  }
  if (code == 0) {
    free(objects);
    ct_elf_drop_pages(plan->elf);
  }
  return code;
}

size_t
ct_modules_prototype_sources(const struct ct_modules *modules, struct ct_prototype_source **out)
{
  struct ct_prototype_source *sources = calloc(modules->count + 1, sizeof(*sources));
  size_t count = 0;
  for (size_t i = 0; sources != NULL && i < modules->count; i++) {
    if (modules->items[i].known_plan != NULL) {
      sources[count++] = (struct ct_prototype_source){modules->items[i].known_plan, modules->items[i].first_fn};
    }
  }
  *out = sources;
  return count;
}

int
ct_prototypes_text(const struct ct_prototype_source *sources, size_t count, struct ct_plans *plans,
                   const struct ct_trace_writer *writer, char **text, size_t *size)
{
  *text = NULL;
  *size = 0;
  struct writing writing = {.out = open_memstream(text, size)};
  int code = writing.out == NULL ? CT_ENOMEM : 0;
  for (size_t i = 0; i < count && code == 0; i++) {
    ct_plans_lock(plans); /* their files are open for one at a time */
    code = write_module(&writing, &sources[i], writer);
    ct_plans_unlock(plans);
  }
  for (size_t i = 0; i < count && code == 0 && writing.has_values; i++) {
    ct_plans_lock(plans);
    code = write_objects(&writing, &sources[i]);
    ct_plans_unlock(plans);
  }
  tdestroy(writing.known, free_constants);
  if (writing.out != NULL && fclose(writing.out) != 0) {
    code = CT_ENOMEM;
  }
  return code;
}

int
ct_modules_write_prototypes(const struct ct_modules *modules, struct ct_trace_writer *writer)
{
  struct ct_prototype_source *sources;
  char *text;
  size_t size, count = ct_modules_prototype_sources(modules, &sources);
  int code = ct_prototypes_text(sources, count, modules->plans, writer, &text, &size);
  if (code == 0 && size != 0) {
    code = ct_trace_writer_prototypes(writer, text, size);
  }
  free(text);
  free(sources);
  return code;
}
