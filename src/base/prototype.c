/* SPDX-License-Identifier: MIT */
/*
 * The lines of prototypes.tsv; see prototype.h.
 *
 *   int open_it(const char *path, unsigned flags, ...)
 *
 *   i0 i4 - int TAB i0 p8s path const char * TAB i1 u4 flags unsigned int TAB ...
 *
 * That is the result, then the parameters: place, type, name (`-`: none), and the name of the type, which may have
 * spaces. The line may come from anywhere: what does not parse is no prototype.
 */
#include "base/prototype.h"

#include <contrail/text.h>

#include <stdlib.h>
#include <string.h>

void
ct_prototype_put_name(FILE *out, const char *name, bool spaces_too)
{
  for (; *name != '\0'; name++) {
    unsigned char c = (unsigned char)*name;
    putc_unlocked(c < 0x20 || c == 0x7f || (spaces_too && (c == ' ' || c == '=')) ? '?' : c, out);
  }
}

static void
write_one(FILE *out, const struct ct_type *type, const struct ct_place *place, const char *name)
{
  for (size_t i = 0; i < 2 && place->piece[i] != '\0'; i++) {
    putc_unlocked(place->piece[i], out);
    if (place->piece[i] != '?') {
      fprintf(out, "%u", place->number[i]);
    }
  }
  fprintf(out, " %c%u", type->kind, type->bytes);
  if (type->pointee != CT_POINTEE_OTHER) {
    putc_unlocked(type->pointee, out);
  }
  if (type->is_unsigned) {
    putc_unlocked('u', out);
  }
  if (type->constants_number != 0) {
    fprintf(out, ":%u", type->constants_number);
  }
  putc_unlocked(' ', out);
  ct_prototype_put_name(out, name == NULL || *name == '\0' ? "-" : name, true);
  putc_unlocked(' ', out);
  ct_prototype_put_name(out, type->name != NULL ? type->name : "", false);
}

void
ct_prototype_write(FILE *out, const struct ct_prototype *prototype)
{
  write_one(out, &prototype->result, &prototype->result_place, NULL);
  for (uint32_t i = 0; i < prototype->count; i++) {
    const struct ct_parameter *parameter = &prototype->parameters[i];
    putc_unlocked('\t', out);
    write_one(out, &parameter->type, &parameter->place, parameter->name);
  }
  if (prototype->is_variadic) {
    fputs("\t...", out);
  }
}

/* Digits; false when there are none or the number is above max. */
static bool
take_number(char **at, uint64_t max, uint64_t *out)
{
  uint64_t value = 0;
  char *p = *at;
  for (; *p >= '0' && *p <= '9'; p++) {
    uint64_t digit = (uint64_t)(*p - '0');
    if (digit > max || value > (max - digit) / 10) {
      return false;
    }
    value = value * 10 + digit;
  }
  if (p == *at) {
    return false;
  }
  *at = p;
  *out = value;
  return true;
}

/* Up to the separator, which becomes the end of the text; NULL at the end. */
static char *
cut(char **rest, char separator)
{
  char *begin = *rest;
  if (begin == NULL) {
    return NULL;
  }
  char *end = strchr(begin, separator);
  *rest = end != NULL ? end + 1 : NULL;
  if (end != NULL) {
    *end = '\0';
  }
  return begin;
}

static bool
parse_place(char *text, struct ct_place *place)
{
  *place = (struct ct_place){{0}};
  if (strcmp(text, "?") == 0) {
    place->piece[0] = '?';
    return true;
  }
  for (size_t i = 0; *text != '\0'; i++) {
    uint64_t number, limit;
    char piece = *text++;
    limit = piece == 'i' ? CT_INTEGER_PLACES - 1 : piece == 'f' ? CT_VECTOR_PLACES - 1 : piece == 's' ? UINT16_MAX : 0;
    if (i == 2 || strchr("ifsx", piece) == NULL || !take_number(&text, limit, &number)) {
      return false;
    }
    place->piece[i] = piece;
    place->number[i] = (uint16_t)number;
  }
  return true;
}

static bool
parse_type(char *text, struct ct_type *type)
{
  uint64_t bytes, number = 0;
  *type = (struct ct_type){.kind = (uint8_t)*text};
  if (*text == '\0' || strchr("?viubcfzpean", *text) == NULL) {
    return false;
  }
  text++;
  if (!take_number(&text, UINT32_MAX, &bytes)) {
    return false;
  }
  type->bytes = (uint32_t)bytes;
  if (type->kind == CT_TYPE_POINTER && *text != '\0' && strchr("sSf", *text) != NULL) {
    type->pointee = (uint8_t)*text++;
  } else if (type->kind == CT_TYPE_ENUM && *text == 'u') {
    type->is_unsigned = true;
    text++;
  }
  bool has_list = type->kind == CT_TYPE_ENUM || type->kind == CT_TYPE_POINTER || type->kind == CT_TYPE_AGGREGATE;
  if (has_list && *text == ':') {
    text++;
    if (!take_number(&text, UINT32_MAX, &number)) {
      return false;
    }
  }
  type->constants_number = (uint32_t)number;
  return *text == '\0';
}

static bool
parse_one(char *text, struct ct_type *type, struct ct_place *place, const char **name)
{
  char *where = cut(&text, ' '), *what = cut(&text, ' '), *called = cut(&text, ' ');
  if (called == NULL || text == NULL || !parse_place(where, place) || !parse_type(what, type)) {
    return false;
  }
  ct_make_printable(called);
  ct_make_printable(text);
  *name = strcmp(called, "-") == 0 ? "" : called;
  type->name = text;
  return true;
}

bool
ct_prototype_parse(char *text, struct ct_prototype *prototype)
{
  const char *none;
  memset(prototype, 0, sizeof(*prototype));
  if (!parse_one(cut(&text, '\t'), &prototype->result, &prototype->result_place, &none)) {
    return false;
  }
  for (char *field; (field = cut(&text, '\t')) != NULL;) {
    struct ct_parameter *parameter = &prototype->parameters[prototype->count];
    if (strcmp(field, "...") == 0 && text == NULL) {
      prototype->is_variadic = true;
      return true;
    }
    if (prototype->count == CT_PARAMETERS_MAX ||
        !parse_one(field, &parameter->type, &parameter->place, &parameter->name)) {
      return false;
    }
    prototype->count++;
  }
  return true;
}

/* Names for single bits, and for sets of these: a number that has no name may be a set then. */
static bool
are_bits(const struct ct_constant *list, size_t count)
{
  uint64_t bits = 0, all = 0;
  size_t singles = 0;
  for (size_t i = 0; i < count; i++) {
    bool is_single = list[i].value != 0 && (list[i].value & (list[i].value - 1)) == 0;
    bits |= is_single ? list[i].value : 0;
    all |= list[i].value;
    singles += is_single;
  }
  return singles >= 2 && bits == all;
}

bool
ct_constants_parse(char *text, struct ct_constants *constants)
{
  size_t fields = 1, n = 0;
  for (const char *p = text; *p != '\0'; p++) {
    fields += *p == '\t';
  }
  struct ct_constant *list = reallocarray(NULL, fields, sizeof(*list));
  for (char *field; list != NULL && (field = cut(&text, '\t')) != NULL; n++) {
    char *name = cut(&field, '=');
    bool is_negative = field != NULL && *field == '-';
    uint64_t value;
    if (is_negative) {
      field++;
    }
    if (field == NULL || !take_number(&field, UINT64_MAX, &value) || *field != '\0') {
      free(list);
      return false;
    }
    ct_make_printable(name);
    list[n] = (struct ct_constant){name, is_negative ? 0 - value : value};
  }
  if (list == NULL) {
    return false;
  }
  *constants = (struct ct_constants){.list = list, .count = (uint32_t)n};
  constants->sets = are_bits(list, n) ? CT_CONSTANTS_WHOLE_SETS : CT_CONSTANTS_NUMBERS;
  return true;
}

void
ct_member_write(FILE *out, const struct ct_member *member)
{
  struct ct_place offset = {{0}};
  fprintf(out, "\t%u", member->offset);
  write_one(out, &member->type, &offset, member->name);
}

bool
ct_members_parse(char *text, struct ct_members *members)
{
  *members = (struct ct_members){.count = 0};
  for (char *field; (field = cut(&text, '\t')) != NULL;) {
    struct ct_member *member = &members->list[members->count];
    uint64_t offset;
    char *rest;
    members->goes_on |= members->count == CT_MEMBERS_MAX || strcmp(field, "...") == 0;
    if (members->goes_on) {
      return true;
    }
    char *where = cut(&field, ' '), *what = cut(&field, ' '), *called = cut(&field, ' ');
    rest = where;
    if (called == NULL || field == NULL || !take_number(&rest, CT_MEMBERS_BYTES, &offset) || *rest != '\0' ||
        !parse_type(what, &member->type)) {
      return false;
    }
    ct_make_printable(called);
    ct_make_printable(field);
    member->offset = (uint32_t)offset;
    member->name = called;
    member->type.name = field;
    members->count++;
  }
  return members->count != 0;
}

char *
ct_constants_text(const struct ct_constant *list, uint32_t count)
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
