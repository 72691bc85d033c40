/* SPDX-License-Identifier: MIT */
/*
 * Lines of prototypes.tsv: what is taken is written as it was read, and shows any registers as text without control
 * characters and as JSON.
 *
 *   input:   flags u8 | bytes of constants u8 | constants | known u8 x 4 | registers, 8 bytes each | line
 *   flags:   1 the line is one of the known calls, by its number    2 some memory can be read    4 errno is known
 */
#include "fuzz.h"

#include "base/known_calls.h"
#include "views/values.h"

#include <jansson.h>

static uint8_t memory[64];

static size_t
read_memory(void *arg, uint64_t address, void *out, size_t bytes)
{
  if (address >= sizeof(memory)) {
    return 0;
  }
  size_t left = sizeof(memory) - address;
  memcpy(out, memory + address, bytes < left ? bytes : left);
  return bytes < left ? bytes : left;
}

static const char *
find_symbol(void *arg, uint64_t address, uint64_t *offset)
{
  *offset = address % 7;
  return address % 3 == 0 ? "symbol" : NULL;
}

static void
check_text(struct ct_value_text *text)
{
  for (size_t i = 0; i < text->length; i++) {
    CHECK((unsigned char)text->data[i] >= 0x20 && text->data[i] != 0x7f);
  }
  text->length = 0;
}

static void
check_json(struct ct_value_text *text)
{
  json_error_t error;
  json_t *value = json_loadb(text->data, text->length, JSON_REJECT_DUPLICATES, &error);
  if (value == NULL) {
    fprintf(stderr, "%s: %.*s\n", error.text, (int)text->length, text->data);
  }
  CHECK(value != NULL);
  json_decref(value);
  text->length = 0;
}

/* What was parsed, written, and parsed again is the same text. */
static void
check_again(const struct ct_prototype *prototype)
{
  static struct ct_prototype other;
  char *text = NULL, *again = NULL;
  size_t size;
  FILE *out = open_memstream(&text, &size);
  CHECK(out != NULL);
  ct_prototype_write(out, prototype);
  CHECK(fclose(out) == 0);
  char *copy = strdup(text);
  CHECK(copy != NULL && ct_prototype_parse(copy, &other));
  out = open_memstream(&again, &size);
  CHECK(out != NULL);
  ct_prototype_write(out, &other);
  CHECK(fclose(out) == 0 && strcmp(text, again) == 0);
  free(text);
  free(again);
  free(copy);
}

static void
show(const struct ct_prototype *prototype, const struct ct_value_registers *registers,
     const struct ct_value_context *context)
{
  struct ct_value_text text = {NULL, 0, 0};
  ct_values_put_arguments(&text, prototype, registers, context);
  check_text(&text);
  ct_values_put_result(&text, prototype, registers, context);
  check_text(&text);
  ct_values_put_json_arguments(&text, prototype, registers, context);
  check_json(&text);
  ct_values_put_json_result(&text, prototype, registers, context);
  check_json(&text);
  ct_value_text_free(&text);
}

/* As the reader of a trace makes it of the file: UTF-8, with an end. */
static char *
text_of(struct input *input, size_t bytes)
{
  size_t taken;
  uint8_t *part = input_part(input, bytes, &taken);
  char *text = malloc(taken + 1);
  CHECK(text != NULL);
  for (size_t i = 0; i < taken; i++) {
    text[i] = (char)(part[i] & 0x7f);
  }
  text[taken] = '\0';
  free(part);
  return text;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
  static struct ct_prototype prototype;
  struct input input = {data, data + size};
  uint8_t flags = (uint8_t)input_number(&input, 1);
  char *names = text_of(&input, input_number(&input, 1));
  struct ct_constants constants = {NULL, 0, 0, 0};
  bool has_constants = ct_constants_parse(names, &constants);
  struct ct_value_registers registers = {.has_error = (flags & 4) != 0};
  registers.integers_known = (uint8_t)input_number(&input, 1);
  registers.vectors_known = (uint8_t)input_number(&input, 1);
  registers.results_known = (uint8_t)input_number(&input, 1);
  registers.result_vectors_known = registers.results_known >> 2;
  registers.stack_bytes = (uint32_t)input_number(&input, 1) % sizeof(memory);
  registers.stack = memory;
  for (size_t i = 0; i < CT_INTEGER_PLACES; i++) {
    registers.integers[i] = input_number(&input, 8);
    memcpy(memory + 8 * i, &registers.integers[i], 8);
  }
  for (size_t i = 0; i < CT_VECTOR_PLACES; i++) {
    registers.vectors[i] = i < 2 ? input_number(&input, 8) : registers.integers[i - 2];
  }
  registers.results[0] = registers.result_vectors[1] = input_number(&input, 8);
  registers.results[1] = registers.result_vectors[0] = registers.integers[0];
  registers.error = (int)registers.integers[1];
  struct ct_value_context context = {NULL, find_symbol, (flags & 2) != 0 ? read_memory : NULL};
  char room[CT_KNOWN_CALL_BYTES];
  char *line = text_of(&input, SIZE_MAX);
  if (flags & 1) {
    const char *call = ct_known_call_at((unsigned char)line[0] * 4u);
    if (call != NULL) {
      CHECK(ct_known_call_parse(call, room, sizeof(room), &prototype));
      show(&prototype, &registers, &context);
    }
  } else if (ct_prototype_parse(line, &prototype)) {
    check_again(&prototype);
    prototype.result.constants = has_constants ? &constants : NULL;
    for (uint32_t i = 0; i < prototype.count; i++) {
      prototype.parameters[i].type.constants = prototype.result.constants;
    }
    show(&prototype, &registers, &context);
  }
  free((void *)constants.list);
  free(names);
  free(line);
  return 0;
}
