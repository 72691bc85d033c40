/* SPDX-License-Identifier: MIT */
/*
 * What of a call is recorded besides its enter and return, by what the function takes and gives: as the table of known
 * calls says, or debug information. That must have been read for it (ct_plan_prototypes_read).
 */
#include "select/select_internal.h"

#include "base/known_calls.h"
#include "base/prototype.h"
#include "ring/layout.h"
#include "target/elf.h"

#include <stdlib.h>
#include <string.h>

/* ---- what arguments and results point to, in the detail lane ---- */

/* The registers of a prototype that point to text, or to strings: as ct_trampoline_spec has them. */
static uint16_t
texts_in(const struct ct_prototype *prototype, bool constant_only, bool members)
{
  uint16_t texts = 0;
  for (uint32_t i = 0; i < prototype->count; i++) {
    const struct ct_parameter *parameter = &prototype->parameters[i];
    const struct ct_type *type = &parameter->type;
    if (type->kind != CT_TYPE_POINTER || parameter->place.piece[0] != 'i' || parameter->place.piece[1] != '\0' ||
        parameter->place.number[0] >= CT_INTEGER_PLACES) {
      continue;
    }
    if (type->pointee == CT_POINTEE_TEXT && (!constant_only || strncmp(type->name, "const ", 6) == 0)) {
      texts |= (uint16_t)(1u << parameter->place.number[0]);
    } else if (type->pointee == CT_POINTEE_STRING) {
      texts |= (uint16_t)(1u << (parameter->place.number[0] + CT_DETAIL_WANTED_STRINGS_SHIFT));
    } else if (members && type->constants_number != 0) {
      texts |= (uint16_t)((1u | 1u << CT_DETAIL_WANTED_STRINGS_SHIFT) << parameter->place.number[0]);
    }
  }
  return texts;
}

/* What its return asks for: memory that it fills, and the text that its result points to. */
static uint16_t
outs_in(const struct ct_prototype *prototype)
{
  const struct ct_type *result = &prototype->result;
  uint32_t outs = 0;
  for (uint32_t i = 0; i < prototype->count && outs == 0; i++) {
    const struct ct_parameter *parameter = &prototype->parameters[i];
    uint32_t bytes = ct_known_out_bytes(parameter);
    if (parameter->out != CT_OUT_NONE && bytes != 0 && parameter->place.number[0] < CT_PENDING_REGISTERS) {
      outs = (uint32_t)(parameter->place.number[0] + 1) | bytes << CT_DETAIL_OUT_BYTES_SHIFT;
      outs |= (parameter->out == CT_OUT_AS_RESULT ? (uint32_t)CT_DETAIL_OUT_AS_RESULT : 0) << CT_DETAIL_OUT_HOW_SHIFT;
      outs |= parameter->out == CT_OUT_SOME ? CT_DETAIL_OUT_ZERO_FAILS : 0;
    }
  }
  if (result->kind == CT_TYPE_POINTER) {
    outs |= result->pointee == CT_POINTEE_TEXT ? CT_DETAIL_OUT_RESULT_TEXT : 0;
    outs |= outs != 0 ? CT_DETAIL_OUT_ZERO_FAILS : 0;
  }
  return (uint16_t)outs;
}

/* The function i in the table of calls of the C library; NULL: it is none. */
static const char *
known_line(const struct ct_plan *plan, size_t i)
{
  const char *library = ct_elf_soname(plan->elf), *symbol = plan->functions[i].name;
  bool is_static = library == NULL && ct_elf_interp(plan->elf) == NULL;
  if (symbol == NULL || !(is_static || (library != NULL && ct_known_calls_in(library)))) {
    return NULL;
  }
  return ct_known_call(symbol, library == NULL || strstr(library, "musl") == NULL);
}

/* What debug information says of it, and the text that the prototype points into; NULL: nothing. */
static char *
parse_line(const struct ct_plan *plan, size_t i, struct ct_prototype *prototype)
{
  const char *line = ct_plan_prototype(plan, i);
  char *text = line != NULL ? strdup(line) : NULL;
  if (text != NULL && !ct_prototype_parse(text, prototype)) {
    free(text);
    return NULL;
  }
  return text;
}

/*
 * Which arguments of a function of the C library point to text: what is behind these is recorded with its detail. Not
 * of the quick ones where all functions have detail and nobody has named them: it takes a microsecond.
 */
static uint32_t
texts_of_known(const struct ct_plan *plan, size_t i, bool has_all)
{
  char buffer[CT_KNOWN_CALL_BYTES];
  struct ct_prototype prototype;
  const char *line = known_line(plan, i);
  return line != NULL && !(has_all && ct_known_call_is_quick(line)) &&
                 ct_known_call_parse(line, buffer, sizeof(buffer), &prototype)
             ? texts_in(&prototype, true, false) | (uint32_t)outs_in(&prototype) << 16
             : 0;
}

/* Likewise of the function i, which somebody has named, by debug information. */
static uint16_t
texts_of_named(const struct ct_plan *plan, size_t i, bool members)
{
  struct ct_prototype prototype;
  char *text = parse_line(plan, i, &prototype);
  uint16_t texts = text != NULL ? texts_in(&prototype, false, members) : 0;
  free(text);
  return texts;
}

uint32_t
ct_select_texts(const struct ct_plan *plan, size_t i, bool has_all, bool members)
{
  uint32_t texts = texts_of_known(plan, i, has_all);
  return texts == 0 && !has_all ? texts_of_named(plan, i, members) : texts;
}

/* ---- values in the ring of events ---- */

static void
add_argument(const struct ct_parameter *parameter, struct ct_values_form *form)
{
  enum { WORD = 8 };
  const struct ct_place *place = &parameter->place;
  for (size_t i = 0; i < 2 && place->piece[i] != '\0'; i++) {
    uint32_t number = place->number[i], end;
    switch (place->piece[i]) {
    case 'i':
      form->integers |= (uint8_t)(number < CT_INTEGER_PLACES ? 1u << number : 0);
      break;
    case 'f':
      form->vectors |= (uint8_t)(number < CT_VECTOR_PLACES ? 1u << number : 0);
      break;
    case 's': /* what is larger than two words is not shown */
      end = (number + parameter->type.bytes + WORD - 1) / WORD;
      for (uint32_t word = number / WORD; parameter->type.bytes <= 2 * WORD && word < end; word++) {
        bool fits = word < CT_VALUES_STACK_WORDS && __builtin_popcount(form->stack) < (int)CT_VALUES_STACK_MAX;
        form->stack |= fits ? 1u << word : 0;
      }
      break;
    }
  }
}

static void
add_result(const struct ct_prototype *prototype, struct ct_values_form *form)
{
  static const uint8_t integers[2] = {CT_VALUES_RAX, CT_VALUES_RDX}, vectors[2] = {CT_VALUES_XMM0, CT_VALUES_XMM1};
  const struct ct_place *place = &prototype->result_place;
  if (prototype->result.kind == CT_TYPE_VOID) {
    return;
  }
  for (size_t i = 0; i < 2 && place->piece[i] != '\0'; i++) {
    bool is_first_two = place->number[i] < 2;
    form->results |= place->piece[i] == 'i' && is_first_two             ? integers[place->number[i]]
                     : place->piece[i] == 'f' && is_first_two           ? vectors[place->number[i]]
                     : place->piece[i] == 's' || place->piece[i] == '?' ? CT_VALUES_RAX
                                                                        : 0;
  }
  form->results |= prototype->sets_errno ? CT_VALUES_ERRNO : 0;
}

uint64_t
ct_select_values_form(const struct ct_plan *plan, size_t i, bool needs_result)
{
  struct ct_values_form form = {.integers = 3, .results = CT_VALUES_RAX}; /* of what nothing is known of */
  struct ct_prototype prototype;
  char buffer[CT_KNOWN_CALL_BYTES], *text = NULL;
  const char *known = known_line(plan, i);
  if (ct_elf_soname(plan->elf) == NULL && ct_plan_prototype(plan, i) != NULL) {
    known = NULL; /* a function of the program's own, perhaps; views decide likewise */
  }
  if ((known != NULL && ct_known_call_parse(known, buffer, sizeof(buffer), &prototype)) ||
      (text = parse_line(plan, i, &prototype)) != NULL) {
    form = (struct ct_values_form){0};
    for (uint32_t p = 0; p < prototype.count; p++) {
      add_argument(&prototype.parameters[p], &form);
    }
    add_result(&prototype, &form);
  }
  free(text);
  form.results |= needs_result ? CT_VALUES_RAX : 0;
  uint64_t packed;
  memcpy(&packed, &form, sizeof(packed));
  return packed;
}
