/* SPDX-License-Identifier: MIT */
/* See values.h: arguments and results as JSON has them, into text or json_t. */
#include "views/values_internal.h"

#include "base/known_calls.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
give_unsigned(struct ct_value_sink *sink, const char *key, uint64_t value)
{
  char text[24];
  if (value <= INT64_MAX) {
    sink->integer(sink, key, (int64_t)value);
    return;
  }
  snprintf(text, sizeof(text), "%" PRIu64, value); /* more than most readers of JSON take as a number */
  sink->string(sink, key, text);
}

static void
give_hexadecimal(struct ct_value_sink *sink, const char *key, uint64_t value)
{
  char text[24];
  snprintf(text, sizeof(text), "0x%" PRIx64, value);
  sink->string(sink, key, text);
}

/* "value", where the type has one; and "text" where that says more. */
static void
give_value(struct ct_value_sink *sink, const struct ct_type *type, const struct value_bits *bits,
           const struct ct_value_context *context)
{
  struct ct_value_text text = {NULL, 0, 0};
  uint64_t word = values_low_bits(bits->words[0], type->bytes);
  bool is_signed =
      type->kind == CT_TYPE_SIGNED || type->kind == CT_TYPE_ERROR || (type->kind == CT_TYPE_ENUM && !type->is_unsigned);
  values_put_value(&text, type, bits, context);
  const char *shown = text.data != NULL ? text.data : "";
  switch (type->kind) {
  case CT_TYPE_SIGNED:
  case CT_TYPE_UNSIGNED:
  case CT_TYPE_ENUM:
  case CT_TYPE_CHAR:
  case CT_TYPE_MODE:
  case CT_TYPE_ERROR:
    if (bits->count == 2) {
      sink->string(sink, "value", shown);
    } else if (is_signed) {
      sink->integer(sink, "value", values_signed_bits(word, type->bytes));
    } else {
      give_unsigned(sink, "value", word);
    }
    break;
  case CT_TYPE_BOOL:
    sink->boolean(sink, "value", word != 0);
    break;
  case CT_TYPE_FLOAT:
    if (shown[0] != '?' && !isfinite(strtod(shown, NULL))) { /* no number of JSON, or none that readers take */
      sink->string(sink, "value", shown);
    } else {
      sink->number(sink, "value", shown[0] != '?' ? shown : NULL);
    }
    break;
  }
  bool is_number = shown[0] == '-' || (shown[0] >= '0' && shown[0] <= '9');
  if (!is_number || strchr(shown, ' ') != NULL || type->kind == CT_TYPE_MODE) {
    sink->string(sink, "text", shown);
  }
  ct_value_text_free(&text);
}

static void
give_raw(struct ct_value_sink *sink, const struct value_bits *bits)
{
  if (bits->count == 1) {
    give_hexadecimal(sink, "raw", bits->words[0]);
    return;
  }
  sink->open(sink, "raw", true);
  give_hexadecimal(sink, NULL, bits->words[0]);
  give_hexadecimal(sink, NULL, bits->words[1]);
  sink->close(sink, true);
}

/* "members" of a structure, or of the one that is pointed to, as far as it was recorded. */
static void
give_members(struct ct_value_sink *sink, const struct ct_type *type, const struct value_bits *bits,
             const struct ct_value_context *context)
{
  char data[CT_MEMBERS_BYTES];
  size_t had = 0;
  bool is_open = false;
  if (type->members == NULL) {
    return;
  }
  if (type->kind == CT_TYPE_POINTER && context != NULL && context->memory != NULL) {
    had = context->memory(context->arg, bits->words[0], data, sizeof(data));
  } else if (type->kind == CT_TYPE_AGGREGATE && type->bytes <= sizeof(bits->words[0]) * bits->count) {
    had = type->bytes;
    memcpy(data, bits->words, had);
  }
  for (uint32_t i = 0; i < type->members->count; i++) {
    const struct ct_member *member = &type->members->list[i];
    struct value_bits of_member = {{0}, member->type.bytes > 8 ? 2 : 1};
    if (member->offset + (size_t)member->type.bytes > had) {
      continue;
    }
    if (!is_open) {
      sink->open(sink, "members", true);
      is_open = true;
    }
    sink->open(sink, NULL, false);
    sink->string(sink, "name", member->name);
    sink->string(sink, "type", member->type.name);
    if (member->type.bytes != 0 && member->type.bytes <= sizeof(of_member.words)) {
      memcpy(of_member.words, data + member->offset, member->type.bytes);
      give_raw(sink, &of_member);
      give_value(sink, &member->type, &of_member, NULL);
    }
    sink->close(sink, false);
  }
  if (is_open) {
    sink->close(sink, true);
  }
}

static void
give_known_member(struct ct_value_sink *sink, const char *key, const struct ct_known_member *member,
                  const struct value_bits *bits)
{
  const struct ct_type type = {.kind = member->kind, .bytes = member->bytes, .name = ""};
  struct ct_value_text text = {NULL, 0, 0};
  if (member->kind == CT_TYPE_SIGNED) {
    sink->integer(sink, key, values_signed_bits(bits->words[0], member->bytes));
  } else if (member->kind != CT_TYPE_FLOAT || !isfinite(*(const double *)(const void *)bits->words)) {
    give_unsigned(sink, key, bits->words[0]);
  } else {
    values_put_value(&text, &type, bits, NULL);
    sink->number(sink, key, text.data);
    ct_value_text_free(&text);
  }
}

/* "value" of what the call has filled in: a list of numbers, or an object. */
static void
give_filled_value(struct ct_value_sink *sink, const struct ct_parameter *parameter,
                  const struct ct_value_registers *registers, uint32_t i)
{
  const struct ct_known_struct *known = ct_known_struct(parameter->type.name, parameter->out_count > 1);
  struct value_bits bits;
  if (known == NULL) {
    sink->number(sink, "value", NULL);
    return;
  }
  bool is_struct = known->members[0].name[0] != '\0';
  sink->open(sink, "value", !is_struct);
  for (uint32_t which = 0; which < (is_struct ? 1 : parameter->out_count); which++) {
    for (const struct ct_known_member *member = known->members; member->name != NULL; member++) {
      if (values_member_bits(known, member, which, registers, i, &bits)) {
        give_known_member(sink, is_struct ? member->name : NULL, member, &bits);
      }
    }
  }
  sink->close(sink, !is_struct);
}

/* "filled": [{"name":"buf","bytes":"616263","text":"abc"}], or with "value". */
static void
give_filled(struct ct_value_sink *sink, const struct ct_prototype *prototype,
            const struct ct_value_registers *registers)
{
  bool is_open = false, goes_on;
  for (uint32_t i = 0; i < registers->out_count; i++) {
    const struct ct_parameter *parameter = values_filled_parameter(prototype, registers, i);
    struct ct_value_text text = {NULL, 0, 0};
    if (parameter == NULL) {
      continue;
    }
    if (!is_open) {
      sink->open(sink, "filled", true);
      is_open = true;
    }
    sink->open(sink, NULL, false);
    sink->string(sink, "name", parameter->name);
    size_t length = values_filled_length(parameter, registers, i, &goes_on);
    for (size_t k = 0; k < length; k++) {
      ct_value_put_format(&text, "%02x", registers->outs[i].data[k]);
    }
    sink->string(sink, "bytes", text.data != NULL ? text.data : "");
    if (values_gives_value(parameter)) {
      give_filled_value(sink, parameter, registers, i);
    } else {
      text.length = 0;
      values_put_quoted(&text, registers->outs[i].data, length, goes_on);
      sink->string(sink, "text", text.data != NULL ? text.data : "");
    }
    ct_value_text_free(&text);
    sink->close(sink, false);
  }
  if (is_open) {
    sink->close(sink, true);
  }
}

void
ct_values_give_arguments(struct ct_value_sink *sink, const struct ct_prototype *prototype,
                         const struct ct_value_registers *registers, const struct ct_value_context *context)
{
  struct value_bits bits;
  sink->open(sink, NULL, true);
  for (uint32_t i = 0; i < prototype->count; i++) {
    const struct ct_parameter *parameter = &prototype->parameters[i];
    if (values_is_absent(prototype, parameter, registers)) {
      continue;
    }
    sink->open(sink, NULL, false);
    sink->string(sink, "name", parameter->name);
    sink->string(sink, "type", parameter->type.name);
    if (values_bits_of(registers, &parameter->type, &parameter->place, false, &bits)) {
      give_raw(sink, &bits);
      give_value(sink, &parameter->type, &bits, context);
      give_members(sink, &parameter->type, &bits, context);
    }
    sink->close(sink, false);
  }
  sink->close(sink, true);
}

void
ct_values_give_result(struct ct_value_sink *sink, const struct ct_prototype *prototype,
                      const struct ct_value_registers *registers, const struct ct_value_context *context)
{
  struct value_bits bits;
  sink->open(sink, NULL, false);
  sink->string(sink, "type", prototype->result.name);
  if (prototype->result.kind != CT_TYPE_VOID && prototype->result_place.piece[0] != 's' &&
      values_bits_of(registers, &prototype->result, &prototype->result_place, true, &bits)) {
    give_raw(sink, &bits);
    give_value(sink, &prototype->result, &bits, context);
    give_members(sink, &prototype->result, &bits, context);
    if (registers->has_error && prototype->sets_errno && values_is_failure(&prototype->result, &bits)) {
      const char *name = ct_error_name(registers->error);
      sink->integer(sink, "errno", registers->error);
      if (name != NULL) {
        sink->string(sink, "error", name);
      }
    }
    give_filled(sink, prototype, registers);
  }
  sink->close(sink, false);
}

void
ct_values_put_json_arguments(struct ct_value_text *out, const struct ct_prototype *prototype,
                             const struct ct_value_registers *registers, const struct ct_value_context *context)
{
  struct ct_text_sink text;
  ct_text_sink_init(&text, out);
  ct_values_give_arguments(&text.sink, prototype, registers, context);
}

void
ct_values_put_json_result(struct ct_value_text *out, const struct ct_prototype *prototype,
                          const struct ct_value_registers *registers, const struct ct_value_context *context)
{
  struct ct_text_sink text;
  ct_text_sink_init(&text, out);
  ct_values_give_result(&text.sink, prototype, registers, context);
}

json_t *
ct_values_json_arguments(const struct ct_prototype *prototype, const struct ct_value_registers *registers,
                         const struct ct_value_context *context)
{
  struct ct_json_sink json;
  ct_json_sink_init(&json);
  ct_values_give_arguments(&json.sink, prototype, registers, context);
  return json.whole;
}

json_t *
ct_values_json_result(const struct ct_prototype *prototype, const struct ct_value_registers *registers,
                      const struct ct_value_context *context)
{
  struct ct_json_sink json;
  ct_json_sink_init(&json);
  ct_values_give_result(&json.sink, prototype, registers, context);
  return json.whole;
}
