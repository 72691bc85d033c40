/* SPDX-License-Identifier: MIT */
/*
 * What a plan's functions take and give, kept with the plan, since the processes of a tree share it: at first only the
 * functions that are asked about are read; when others are asked about after that, all that are left are.
 */
#include "plan/plan.h"

#include "target/prototypes.h"

#include <stdlib.h>
#include <string.h>

struct ct_plan_prototypes {
  char **lines;   /* of each function; NULL: nothing is known, or it was not asked about */
  uint8_t *asked; /* of each function */
  bool was_read;
  char **constants; /* by the numbers in lines, from 1 up */
  uint32_t constants_count;
  const uint32_t *asking; /* the functions that are being read */
};

/* The list's text, which is taken. */
static uint32_t
take_list(struct ct_plan_prototypes *prototypes, char *text)
{
  uint32_t n = prototypes->constants_count;
  if (text != NULL && (n & (n - 1)) == 0) {
    char **grown = reallocarray(prototypes->constants, n == 0 ? 1 : 2 * (size_t)n, sizeof(*grown));
    if (grown == NULL) {
      free(text);
      return 0;
    }
    prototypes->constants = grown;
  }
  if (text == NULL) {
    return 0;
  }
  prototypes->constants[prototypes->constants_count++] = text;
  return prototypes->constants_count;
}

static uint32_t
take_constants(void *arg, const struct ct_constant *list, uint32_t count)
{
  return take_list(arg, ct_constants_text(list, count));
}

static uint32_t
take_members(void *arg, const char *fields)
{
  return take_list(arg, strdup(fields));
}

static void
take_prototype(void *arg, size_t index, const struct ct_prototype *prototype)
{
  struct ct_plan_prototypes *prototypes = arg;
  char *text = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  if (out == NULL) {
    return;
  }
  ct_prototype_write(out, prototype);
  if (fclose(out) == 0) {
    char **line = &prototypes->lines[prototypes->asking[index]];
    free(*line);
    *line = text;
  }
}

static int
read_missing(const struct ct_plan *plan, struct ct_plan_prototypes *prototypes, const uint8_t *wanted)
{
  uint32_t *asking = reallocarray(NULL, plan->count + 1, sizeof(*asking));
  struct ct_prototype_wanted *list = reallocarray(NULL, plan->count + 1, sizeof(*list));
  size_t count = 0;
  int code = asking == NULL || list == NULL ? CT_ENOMEM : 0;
  for (size_t i = 0; i < plan->count && code == 0; i++) {
    if (!prototypes->asked[i] && (wanted[i] != 0 || prototypes->was_read)) {
      prototypes->asked[i] = 1;
      asking[count] = (uint32_t)i;
      list[count++] = (struct ct_prototype_wanted){plan->functions[i].address, plan->functions[i].name};
    }
  }
  if (code == 0) {
    struct ct_prototype_sink sink = {prototypes, take_constants, take_members, take_prototype};
    prototypes->asking = asking;
    prototypes->was_read = true;
    code = ct_prototypes_read(plan->elf, list, count, &sink);
    ct_elf_drop_pages(plan->elf);
  }
  free(asking);
  free(list);
  return code == CT_ENOENT ? 0 : code;
}

int
ct_plan_prototypes_read(const struct ct_plan *plan, const uint8_t *wanted)
{
  struct ct_plan *keeper = (struct ct_plan *)plan; /* what is kept changes nothing that the plan says */
  if (keeper->prototypes == NULL && (keeper->prototypes = calloc(1, sizeof(*keeper->prototypes))) == NULL) {
    return CT_ENOMEM;
  }
  struct ct_plan_prototypes *prototypes = keeper->prototypes;
  if (prototypes->lines == NULL) {
    prototypes->lines = calloc(plan->count + 1, sizeof(*prototypes->lines));
  }
  if (prototypes->asked == NULL) {
    prototypes->asked = calloc(plan->count + 1, 1);
  }
  if (prototypes->lines == NULL || prototypes->asked == NULL) {
    return CT_ENOMEM;
  }
  for (size_t i = 0; i < plan->count; i++) {
    if (wanted[i] != 0 && !prototypes->asked[i]) {
      return read_missing(plan, prototypes, wanted);
    }
  }
  return 0;
}

const char *
ct_plan_prototype(const struct ct_plan *plan, size_t i)
{
  return plan->prototypes != NULL && plan->prototypes->lines != NULL ? plan->prototypes->lines[i] : NULL;
}

const char *
ct_plan_constants(const struct ct_plan *plan, uint32_t number)
{
  bool has = plan->prototypes != NULL && number != 0 && number <= plan->prototypes->constants_count;
  return has ? plan->prototypes->constants[number - 1] : NULL;
}

void
ct_plan_prototypes_free(struct ct_plan *plan)
{
  struct ct_plan_prototypes *prototypes = plan->prototypes;
  if (prototypes == NULL) {
    return;
  }
  for (size_t i = 0; prototypes->lines != NULL && i < plan->count; i++) {
    free(prototypes->lines[i]);
  }
  for (uint32_t i = 0; i < prototypes->constants_count; i++) {
    free(prototypes->constants[i]);
  }
  free(prototypes->lines);
  free(prototypes->asked);
  free(prototypes->constants);
  free(prototypes);
}
