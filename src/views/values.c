/* SPDX-License-Identifier: MIT */
/*
 * See values.h. A value is taken apart in two steps: values_bits_of finds the bits of it that were recorded,
 * values_put_value shows them by their type. Only as many bits count as the type has: the rest of a register is
 * whatever was left there.
 */
#include "views/values_internal.h"

#include "base/known_calls.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { FLAGS_TEXT_BYTES = 512 };

/* ---- Bits ---- */

static bool
piece_of(const struct ct_value_registers *registers, char piece, uint16_t number, bool is_result, uint64_t *out)
{
  bool is_integer = piece == 'i';
  if ((piece != 'i' && piece != 'f') || number >= (is_result ? 2 : is_integer ? CT_INTEGER_PLACES : CT_VECTOR_PLACES)) {
    return false;
  }
  uint8_t known = is_result    ? is_integer ? registers->results_known : registers->result_vectors_known
                  : is_integer ? registers->integers_known
                               : registers->vectors_known;
  const uint64_t *from = is_result    ? is_integer ? registers->results : registers->result_vectors
                         : is_integer ? registers->integers
                                      : registers->vectors;
  *out = from[number];
  return (known >> number & 1) != 0;
}

static bool
stack_bits(const struct ct_value_registers *registers, const struct ct_type *type, uint16_t offset,
           struct value_bits *bits)
{
  uint32_t bytes = type->bytes == 0 || type->bytes > 16 ? 0 : type->bytes;
  if (bytes != 0 && registers->stack == NULL && offset % 8 == 0) {
    bits->count = bytes > 8 ? 2 : 1;
    for (uint32_t i = 0, word = offset / 8; i < bits->count; i++, word++) {
      if (word >= CT_STACK_WORDS_KNOWN || (registers->words_known >> word & 1) == 0) {
        return false;
      }
      bits->words[i] = registers->words[word];
    }
    return true;
  }
  if (bytes == 0 || registers->stack == NULL || registers->stack_bytes < bytes ||
      offset > registers->stack_bytes - bytes) {
    return false;
  }
  memcpy(bits->words, registers->stack + offset, bytes);
  bits->count = bytes > 8 ? 2 : 1;
  return true;
}

/* All of the value's bits; false when some are not known. */
bool
values_bits_of(const struct ct_value_registers *registers, const struct ct_type *type, const struct ct_place *place,
               bool is_result, struct value_bits *bits)
{
  *bits = (struct value_bits){{0}, 0};
  if (place->piece[0] == 's' && !is_result) {
    return stack_bits(registers, type, place->number[0], bits);
  }
  for (size_t i = 0; i < 2 && place->piece[i] != '\0'; i++) {
    if (!piece_of(registers, place->piece[i], place->number[i], is_result, &bits->words[i])) {
      return false;
    }
    bits->count++;
  }
  return bits->count != 0;
}

uint64_t
values_low_bits(uint64_t value, uint32_t bytes)
{
  return bytes == 0 || bytes >= 8 ? value : value & ((UINT64_C(1) << 8 * bytes) - 1);
}

int64_t
values_signed_bits(uint64_t value, uint32_t bytes)
{
  uint32_t unused = bytes == 0 || bytes >= 8 ? 0 : 64 - 8 * bytes;
  return (int64_t)(value << unused) >> unused;
}

/* ---- Values ---- */

/* The shortest text that gives the same number again; NaN and infinities as printf has them. */
static void
put_float(struct ct_value_text *out, uint64_t bits, uint32_t bytes)
{
  double value;
  float single;
  char text[40];
  if (bytes == 4) {
    uint32_t low = (uint32_t)bits;
    memcpy(&single, &low, sizeof(single));
    value = single;
  } else {
    memcpy(&value, &bits, sizeof(value));
  }
  for (int digits = bytes == 4 ? 6 : 15; digits <= 17; digits++) {
    snprintf(text, sizeof(text), "%.*g", digits, value);
    double again = strtod(text, NULL);
    if (isnan(value) || (bytes == 4 ? (float)again == (float)value : again == value)) {
      break;
    }
  }
  for (char *p = text; *p != '\0'; p++) {
    *p = *p == ',' ? '.' : *p; /* of the locale */
  }
  ct_value_put_text(out, text);
}

/*
 * The name of a number, or of a set of bits. False when there is none: for a set of flags that is when no bit of it has
 * a name.
 */
static bool
put_constant(struct ct_value_text *out, const struct ct_constants *constants, uint64_t value, uint32_t bytes)
{
  struct ct_value_text set = {NULL, 0, 0};
  uint64_t rest = values_low_bits(value, bytes);
  for (uint32_t i = 0; i < constants->count; i++) {
    if (values_low_bits(constants->list[i].value, bytes) == rest) {
      ct_value_put_text(out, constants->list[i].name);
      return true;
    }
  }
  if (rest == 0 || constants->sets == CT_CONSTANTS_NUMBERS) {
    return false;
  }
  bool any = false;
  for (uint32_t i = 0; i < constants->count && set.length < FLAGS_TEXT_BYTES; i++) {
    uint64_t bit = values_low_bits(constants->list[i].value, bytes), mask = constants->enum_mask;
    bool is_number = mask != 0 && (bit & ~mask) == 0;
    if (is_number ? !any && (value & mask) == bit : bit != 0 && (rest & bit) == bit) {
      ct_value_put_text(&set, set.length != 0 ? "|" : "");
      ct_value_put_text(&set, constants->list[i].name);
      rest &= ~bit;
      any = true;
    }
  }
  bool is_named = any && (rest == 0 || constants->sets == CT_CONSTANTS_FLAGS);
  if (is_named) {
    ct_value_put(out, set.data != NULL ? set.data : "", set.length);
    if (rest != 0) {
      ct_value_put_format(out, "|0x%" PRIx64, rest);
    }
  }
  ct_value_text_free(&set);
  return is_named;
}

void
values_put_quoted(struct ct_value_text *out, const void *bytes, size_t length, bool goes_on)
{
  ct_value_put_text(out, "\"");
  for (size_t i = 0; i < length; i++) {
    ct_value_put_byte(out, ((const unsigned char *)bytes)[i], '"');
  }
  ct_value_put_text(out, goes_on ? "\"..." : "\"");
}

/* The bytes at an address, up to a zero or `limit` of them. False when the memory was not recorded. */
static bool
put_string(struct ct_value_text *out, const struct ct_value_context *context, uint64_t address, size_t limit,
           bool ends_by_zero)
{
  char bytes[CT_STRING_SHOWN];
  size_t wanted = limit < sizeof(bytes) ? limit : sizeof(bytes);
  if (context == NULL || context->memory == NULL) {
    return false;
  }
  size_t had = wanted != 0 ? context->memory(context->arg, address, bytes, wanted) : 0;
  if (had == 0 && limit != 0) {
    return false;
  }
  had = had > wanted ? wanted : had;
  size_t length = ends_by_zero ? strnlen(bytes, had) : had;
  values_put_quoted(out, bytes, length, length == had && length < limit);
  return true;
}

/* `{x=3, y=4}`: what lies in these bytes of it. Members that are not there are left out. */
static void
put_type_members(struct ct_value_text *out, const struct ct_members *members, const void *data, size_t bytes,
                 const struct ct_value_context *context)
{
  struct ct_value_context names = {0}; /* what a member points to was not recorded */
  const char *separator = "{";
  bool goes_on = members->goes_on;
  if (context != NULL) {
    names = (struct ct_value_context){context->arg, context->symbol, NULL};
  }
  for (uint32_t i = 0; i < members->count; i++) {
    const struct ct_member *member = &members->list[i];
    struct value_bits bits = {{0}, member->type.bytes > 8 ? 2 : 1};
    if (member->offset + (uint64_t)member->type.bytes > bytes) {
      goes_on = true;
      continue;
    }
    ct_value_put_text(out, separator);
    separator = ", ";
    ct_value_put_text(out, member->name);
    ct_value_put_text(out, "=");
    if (member->type.bytes == 0 || member->type.bytes > sizeof(bits.words)) {
      ct_value_put_text(out, member->type.kind == CT_TYPE_AGGREGATE ? "{...}" : "?");
      continue;
    }
    memcpy(bits.words, (const char *)data + member->offset, member->type.bytes);
    values_put_value(out, &member->type, &bits, &names);
  }
  ct_value_put_text(out, separator[0] == '{' ? "{..." : goes_on ? ", ..." : "");
  ct_value_put_text(out, "}");
}

/* The structure that is pointed to, as far as it was recorded. */
static void
put_pointed_members(struct ct_value_text *out, const struct ct_type *type, uint64_t address,
                    const struct ct_value_context *context)
{
  char data[CT_MEMBERS_BYTES];
  size_t had = type->members != NULL && context != NULL && context->memory != NULL
                   ? context->memory(context->arg, address, data, sizeof(data))
                   : 0;
  if (had != 0) {
    ct_value_put_text(out, " ");
    put_type_members(out, type->members, data, had < sizeof(data) ? had : sizeof(data), context);
  }
}

/* What is known of a pointer's end. */
static void
put_pointee(struct ct_value_text *out, const struct ct_type *type, uint64_t address,
            const struct ct_value_context *context)
{
  uint64_t offset = 0, head[2];
  size_t before = out->length;
  ct_value_put_text(out, " ");
  if (type->pointee == CT_POINTEE_TEXT && put_string(out, context, address, SIZE_MAX, true)) {
    return;
  }
  if (type->pointee == CT_POINTEE_STRING && context != NULL && context->memory != NULL &&
      context->memory(context->arg, address, head, sizeof(head)) == sizeof(head) &&
      put_string(out, context, head[0], head[1], false)) {
    return;
  }
  const char *symbol =
      context != NULL && context->symbol != NULL ? context->symbol(context->arg, address, &offset) : NULL;
  if (symbol != NULL) {
    ct_value_put_text(out, "<");
    ct_value_put_text(out, symbol);
    ct_value_put_format(out, offset != 0 ? "+0x%" PRIx64 ">" : ">", offset);
    return;
  }
  out->length = before;
  if (out->data != NULL) {
    out->data[before] = '\0';
  }
}

static void
put_pointer(struct ct_value_text *out, const struct ct_type *type, uint64_t address,
            const struct ct_value_context *context)
{
  if (address == 0 || address == UINT64_MAX) {
    ct_value_put_text(out, address == 0 ? "NULL" : "-1"); /* as of mmap that failed */
    return;
  }
  ct_value_put_format(out, "0x%" PRIx64, address);
  put_pointee(out, type, address, context);
  put_pointed_members(out, type, address, context);
}

static void
put_integer(struct ct_value_text *out, const struct ct_type *type, const struct value_bits *bits)
{
  if (bits->count == 2 && bits->words[1] != 0) {
    ct_value_put_format(out, "0x%" PRIx64 "%016" PRIx64, bits->words[1], bits->words[0]);
  } else if (bits->count == 2) {
    ct_value_put_format(out, "0x%" PRIx64, bits->words[0]);
  } else if (type->kind == CT_TYPE_SIGNED || (type->kind == CT_TYPE_ENUM && !type->is_unsigned)) {
    ct_value_put_format(out, "%" PRId64, values_signed_bits(bits->words[0], type->bytes));
  } else {
    ct_value_put_format(out, "%" PRIu64, values_low_bits(bits->words[0], type->bytes));
  }
}

static void
put_character(struct ct_value_text *out, uint64_t code)
{
  if (code > 0xff) {
    ct_value_put_format(out, "U+%04" PRIX64, code);
    return;
  }
  ct_value_put_text(out, "'");
  ct_value_put_byte(out, (unsigned char)code, '\'');
  ct_value_put_text(out, "'");
}

void
values_put_value(struct ct_value_text *out, const struct ct_type *type, const struct value_bits *bits,
                 const struct ct_value_context *context)
{
  uint64_t word = values_low_bits(bits->words[0], type->bytes);
  switch (type->kind) {
  case CT_TYPE_BOOL:
    ct_value_put_text(out, word > 1 ? "true?" : word == 1 ? "true" : "false");
    break;
  case CT_TYPE_CHAR:
    put_character(out, word);
    break;
  case CT_TYPE_FLOAT:
    if (type->bytes == 4 || type->bytes == 8) {
      put_float(out, word, type->bytes);
    } else if (type->bytes == sizeof(long double) && strstr(type->name, "long double") != NULL) {
      long double extended;
      memcpy(&extended, bits->words, sizeof(extended));
      ct_value_put_format(out, "%.18Lg", extended);
    } else {
      ct_value_put_text(out, "?");
    }
    break;
  case CT_TYPE_COMPLEX:
    put_float(out, type->bytes == 8 ? (uint32_t)word : bits->words[0], type->bytes / 2);
    ct_value_put_text(out, " + ");
    put_float(out, type->bytes == 8 ? bits->words[0] >> 32 : bits->words[1], type->bytes / 2);
    ct_value_put_text(out, "i");
    break;
  case CT_TYPE_POINTER:
    put_pointer(out, type, word, context);
    break;
  case CT_TYPE_AGGREGATE:
    if (type->members != NULL && type->bytes <= sizeof(bits->words[0]) * bits->count) {
      put_type_members(out, type->members, bits->words, type->bytes, context);
    } else {
      ct_value_put_text(out, "{...}");
    }
    break;
  case CT_TYPE_MODE:
    ct_value_put_format(out, word != 0 ? "0%" PRIo64 : "0", word);
    break;
  case CT_TYPE_ERROR:
    if (word != 0 && ct_error_name((int)word) != NULL) {
      ct_value_put_text(out, ct_error_name((int)word));
      break;
    }
    ct_value_put_format(out, "%" PRId64, values_signed_bits(word, type->bytes));
    break;
  case CT_TYPE_SIGNED:
  case CT_TYPE_UNSIGNED:
  case CT_TYPE_ENUM:
    if (type->constants != NULL && put_constant(out, type->constants, word, type->bytes)) {
      break;
    }
    if (type->constants != NULL && type->constants->sets == CT_CONSTANTS_FLAGS && word != 0) {
      ct_value_put_format(out, "0x%" PRIx64, word);
      break;
    }
    put_integer(out, type, bits);
    break;
  default:
    ct_value_put_format(out, "0x%" PRIx64, word);
  }
}

/* A parameter that this call does not have, as open's mode without O_CREAT. */
bool
values_is_absent(const struct ct_prototype *prototype, const struct ct_parameter *parameter,
                 const struct ct_value_registers *registers)
{
  struct value_bits bits;
  if (parameter->needs == 0 || parameter->needs > prototype->count) {
    return false;
  }
  const struct ct_parameter *needed = &prototype->parameters[parameter->needs - 1];
  return values_bits_of(registers, &needed->type, &needed->place, false, &bits) &&
         (bits.words[0] & parameter->needs_bits) == 0;
}

/* One past the last parameter of which something is known. */
static uint32_t
known_count(const struct ct_prototype *prototype, const struct ct_value_registers *registers)
{
  struct value_bits bits;
  uint32_t count = prototype->count;
  while (count != 0) {
    const struct ct_parameter *last = &prototype->parameters[count - 1];
    if (!values_is_absent(prototype, last, registers) &&
        values_bits_of(registers, &last->type, &last->place, false, &bits)) {
      break;
    }
    count--;
  }
  return count;
}

void
ct_values_put_arguments(struct ct_value_text *out, const struct ct_prototype *prototype,
                        const struct ct_value_registers *registers, const struct ct_value_context *context)
{
  struct value_bits bits;
  uint32_t known = known_count(prototype, registers);
  bool more = prototype->is_variadic;
  const char *separator = "";
  for (uint32_t i = 0; i < prototype->count; i++) {
    const struct ct_parameter *parameter = &prototype->parameters[i];
    if (values_is_absent(prototype, parameter, registers)) {
      continue;
    }
    if (i >= known) {
      more = true;
      break;
    }
    ct_value_put_text(out, separator);
    separator = ", ";
    if (parameter->name[0] != '\0') {
      ct_value_put_text(out, parameter->name);
      ct_value_put_text(out, "=");
    }
    if (values_bits_of(registers, &parameter->type, &parameter->place, false, &bits)) {
      values_put_value(out, &parameter->type, &bits, parameter->out == CT_OUT_NONE ? context : NULL);
    } else {
      ct_value_put_text(out, "?");
    }
  }
  if (more) {
    ct_value_put_text(out, separator);
    ct_value_put_text(out, "...");
  }
}

/* A result of -1 or so that goes with errno. */
bool
values_is_failure(const struct ct_type *type, const struct value_bits *bits)
{
  return (type->kind == CT_TYPE_SIGNED || type->kind == CT_TYPE_POINTER || type->kind == CT_TYPE_UNSIGNED) &&
         values_low_bits(bits->words[0], type->bytes) == values_low_bits(UINT64_MAX, type->bytes);
}

/* ---- What the call has filled in ---- */

/* The parameter whose register pointed to it; NULL: it is none that gives something. */
const struct ct_parameter *
values_filled_parameter(const struct ct_prototype *prototype, const struct ct_value_registers *registers, uint32_t i)
{
  for (uint32_t p = 0; p < prototype->count; p++) {
    const struct ct_parameter *parameter = &prototype->parameters[p];
    if (parameter->place.piece[0] == 'i' && parameter->place.number[0] == registers->outs[i].number) {
      return parameter->out != CT_OUT_NONE ? parameter : NULL;
    }
  }
  return NULL;
}

bool
values_gives_value(const struct ct_parameter *parameter)
{
  return parameter->out == CT_OUT_VALUE || parameter->out == CT_OUT_SOME;
}

/* How many of the bytes are to be shown, and whether it goes on. */
size_t
values_filled_length(const struct ct_parameter *parameter, const struct ct_value_registers *registers, uint32_t i,
                     bool *goes_on)
{
  size_t had = registers->outs[i].bytes;
  size_t length = parameter->out == CT_OUT_TEXT ? strnlen((const char *)registers->outs[i].data, had) : had;
  *goes_on = parameter->out == CT_OUT_TEXT ? length == had
                                           : (registers->results_known & 1) != 0 && registers->results[0] > had;
  return length;
}

/* One member, and of the second of several things the second. False: its bytes are not there. */
bool
values_member_bits(const struct ct_known_struct *known, const struct ct_known_member *member, uint32_t which,
                   const struct ct_value_registers *registers, uint32_t i, struct value_bits *bits)
{
  size_t at = (size_t)which * known->bytes + member->offset;
  *bits = (struct value_bits){.count = 1};
  if (at + member->bytes > registers->outs[i].bytes) {
    return false;
  }
  memcpy(bits->words, registers->outs[i].data + at, member->bytes);
  return true;
}

static void
put_members(struct ct_value_text *out, const struct ct_parameter *parameter, const struct ct_value_registers *registers,
            uint32_t i)
{
  const struct ct_known_struct *known = ct_known_struct(parameter->type.name, parameter->out_count > 1);
  const char *separator = "";
  struct value_bits bits;
  if (known == NULL) {
    return;
  }
  bool is_struct = known->members[0].name[0] != '\0', has_braces = is_struct || parameter->out_count > 1;
  ct_value_put_text(out, has_braces ? "{" : "");
  for (uint32_t which = 0; which < (is_struct ? 1 : parameter->out_count); which++) {
    for (const struct ct_known_member *member = known->members; member->name != NULL; member++) {
      struct ct_type type = {.kind = member->kind, .bytes = member->bytes, .name = ""};
      if (!values_member_bits(known, member, which, registers, i, &bits)) {
        continue;
      }
      ct_value_put_text(out, separator);
      separator = ", ";
      if (is_struct) {
        ct_value_put_format(out, "%s=", member->name);
      }
      values_put_value(out, &type, &bits, NULL);
    }
  }
  ct_value_put_text(out, has_braces ? "}" : "");
}

/* ` {buf="abc"}` */
static void
put_filled(struct ct_value_text *out, const struct ct_prototype *prototype, const struct ct_value_registers *registers)
{
  const char *separator = " {";
  bool goes_on;
  for (uint32_t i = 0; i < registers->out_count; i++) {
    const struct ct_parameter *parameter = values_filled_parameter(prototype, registers, i);
    if (parameter == NULL) {
      continue;
    }
    ct_value_put_text(out, separator);
    separator = ", ";
    ct_value_put_text(out, parameter->name);
    ct_value_put_text(out, "=");
    if (values_gives_value(parameter)) {
      put_members(out, parameter, registers, i);
    } else {
      size_t length = values_filled_length(parameter, registers, i, &goes_on);
      values_put_quoted(out, registers->outs[i].data, length, goes_on);
    }
  }
  ct_value_put_text(out, separator[0] == ',' ? "}" : "");
}

void
ct_values_put_result(struct ct_value_text *out, const struct ct_prototype *prototype,
                     const struct ct_value_registers *registers, const struct ct_value_context *context)
{
  const struct ct_type *type = &prototype->result;
  struct value_bits bits;
  if (type->kind == CT_TYPE_VOID) {
    return;
  }
  if (prototype->result_place.piece[0] == 's') {
    if (ct_registers_have_result(registers)) {
      ct_value_put_text(out, " = {...}");
    }
    return;
  }
  if (!values_bits_of(registers, type, &prototype->result_place, true, &bits)) {
    ct_value_put_text(out, ct_registers_have_result(registers) ? " = ?" : "");
    return;
  }
  ct_value_put_text(out, " = ");
  values_put_value(out, type, &bits, context);
  if (registers->has_error && prototype->sets_errno && values_is_failure(type, &bits)) {
    const char *name = ct_error_name(registers->error);
    ct_value_put_text(out, " ");
    if (name != NULL) {
      ct_value_put_text(out, name);
    } else {
      ct_value_put_format(out, "errno %d", registers->error);
    }
  }
  put_filled(out, prototype, registers);
}
