/* SPDX-License-Identifier: MIT */
/*
 * See prototypes.h. For functions of the C library the table comes first: it names flags, which debug information does
 * not. Elsewhere it is what debug information says; without that, in a program that has no C library beside it (it is
 * statically linked), its functions of these names are taken for the library's.
 */
#include "views/prototypes.h"

#include "base/demangle.h"
#include "base/known_calls.h"

#include <contrail/text.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct ct_view_prototype {
  bool is_known;                  /* it has been looked for */
  char *text;                     /* what the prototype's names point into */
  struct ct_prototype *prototype; /* only as many parameters as it has; NULL: none */
};

struct ct_view_constants {
  struct ct_constants constants; /* without a list: the line is none */
  struct ct_members *members;    /* or these, or neither */
  char *text;
};

struct ct_prototype_code {
  uint64_t start, end;
  uint32_t image, fn;
  const char *name; /* raw, of an object; NULL: it is function fn */
};

void
ct_view_prototypes_init(struct ct_view_prototypes *prototypes, struct ct_trace *trace)
{
  *prototypes = (struct ct_view_prototypes){.trace = trace, .count = ct_trace_function_count(trace)};
}

void
ct_view_prototypes_destroy(struct ct_view_prototypes *prototypes)
{
  for (uint32_t i = 0; prototypes->of != NULL && i < prototypes->count; i++) {
    free(prototypes->of[i].text);
    free(prototypes->of[i].prototype);
  }
  for (uint32_t i = 0; i < prototypes->constants_count; i++) {
    if (prototypes->constants[i] != NULL) {
      free((void *)prototypes->constants[i]->constants.list);
      free(prototypes->constants[i]->members);
      free(prototypes->constants[i]->text);
      free(prototypes->constants[i]);
    }
  }
  free(prototypes->of);
  free(prototypes->constants);
  free(prototypes->code);
  free(prototypes->symbol);
  *prototypes = (struct ct_view_prototypes){0};
}

/* ---- Constants ---- */

/* The list of this number, parsed when it is first asked for; NULL: there is none. */
static const struct ct_view_constants *
list_of(struct ct_view_prototypes *prototypes, uint32_t number, bool is_members)
{
  const char *line = ct_trace_constants(prototypes->trace, number);
  if (line == NULL) {
    return NULL;
  }
  if (number > prototypes->constants_count) {
    struct ct_view_constants **grown = reallocarray(prototypes->constants, number, sizeof(struct ct_view_constants *));
    if (grown == NULL) {
      return NULL;
    }
    memset(grown + prototypes->constants_count, 0, (number - prototypes->constants_count) * sizeof(*grown));
    prototypes->constants = grown;
    prototypes->constants_count = number;
  }
  struct ct_view_constants **entry = &prototypes->constants[number - 1];
  if (*entry != NULL || (*entry = calloc(1, sizeof(**entry))) == NULL || ((*entry)->text = strdup(line)) == NULL) {
    return *entry;
  }
  if (!is_members && !ct_constants_parse((*entry)->text, &(*entry)->constants)) {
    (*entry)->constants = (struct ct_constants){0};
  }
  if (is_members && ((*entry)->members = malloc(sizeof(*(*entry)->members))) != NULL &&
      !ct_members_parse((*entry)->text, (*entry)->members)) {
    free((*entry)->members);
    (*entry)->members = NULL;
  }
  return *entry;
}

/* ---- Prototypes ---- */

/* A C library is in the same image. */
static bool
image_has_library(const struct ct_trace *trace, uint32_t image)
{
  for (uint32_t i = 0; i < ct_trace_module_count(trace); i++) {
    const struct ct_trace_module *module = ct_trace_module(trace, i);
    if (module->image == image && ct_known_calls_in(ct_trace_module_name(trace, i))) {
      return true;
    }
  }
  return false;
}

static void
resolve(struct ct_view_prototypes *prototypes, struct ct_type *type)
{
  if (type->constants_number == 0) {
    return; /* those of known calls are there already */
  }
  const struct ct_view_constants *list = list_of(prototypes, type->constants_number, type->kind != CT_TYPE_ENUM);
  type->constants = list != NULL && list->constants.list != NULL ? &list->constants : NULL;
  type->members = list != NULL ? list->members : NULL;
}

static void
keep(struct ct_view_prototypes *prototypes, struct ct_view_prototype *entry, const struct ct_prototype *prototype,
     char *text)
{
  size_t bytes = offsetof(struct ct_prototype, parameters) + prototype->count * sizeof(prototype->parameters[0]);
  entry->prototype = malloc(bytes);
  entry->text = text;
  if (entry->prototype != NULL) {
    memcpy(entry->prototype, prototype, bytes);
    resolve(prototypes, &entry->prototype->result);
    for (uint32_t i = 0; i < prototype->count; i++) {
      resolve(prototypes, &entry->prototype->parameters[i].type);
    }
  }
}

static void
make(struct ct_view_prototypes *prototypes, const struct ct_trace_function *function, struct ct_view_prototype *entry)
{
  struct ct_trace *trace = prototypes->trace;
  const char *module = ct_trace_module_name(trace, function->module);
  bool in_library = ct_known_calls_in(module);
  const char *line = ct_trace_prototype(trace, function->id);
  const char *call = NULL;
  struct ct_prototype prototype;
  if (in_library || (line == NULL && !image_has_library(trace, prototypes->image))) {
    call = ct_known_call(function->raw_name, strstr(module, "musl") == NULL && strncmp(module, "ld-", 3) != 0);
  }
  char *text = call != NULL ? malloc(CT_KNOWN_CALL_BYTES) : line != NULL ? strdup(line) : NULL;
  if (text == NULL) {
    return;
  }
  if (call != NULL ? ct_known_call_parse(call, text, CT_KNOWN_CALL_BYTES, &prototype)
                   : ct_prototype_parse(text, &prototype)) {
    keep(prototypes, entry, &prototype, text);
  } else {
    free(text);
  }
}

/* ---- Addresses ---- */

static int
by_address(const void *a, const void *b)
{
  const struct ct_prototype_code *x = a, *y = b;
  if (x->image != y->image) {
    return x->image < y->image ? -1 : 1;
  }
  return x->start < y->start ? -1 : x->start > y->start;
}

static const struct ct_trace_module *
module_of(struct ct_trace *trace, uint32_t fn)
{
  const struct ct_trace_function *function = ct_trace_function(trace, fn);
  return function != NULL && function->module < ct_trace_module_count(trace) ? ct_trace_module(trace, function->module)
                                                                             : NULL;
}

static void
load_code(struct ct_view_prototypes *prototypes)
{
  struct ct_trace *trace = prototypes->trace;
  size_t object_count;
  const struct ct_trace_object *objects = ct_trace_objects(trace, &object_count);
  prototypes->has_code = true;
  prototypes->code = calloc((size_t)prototypes->count + object_count + 1, sizeof(*prototypes->code));
  for (uint32_t fn = 0; prototypes->code != NULL && fn < prototypes->count; fn++) {
    const struct ct_trace_function *function = ct_trace_function(trace, fn);
    const struct ct_trace_module *module = module_of(trace, fn);
    if (module != NULL) {
      uint64_t start = module->base + function->address;
      prototypes->code[prototypes->code_count++] = (struct ct_prototype_code){
          start, start + (function->size != 0 ? function->size : 1), module->image, fn, NULL};
    }
  }
  for (size_t i = 0; prototypes->code != NULL && i < object_count; i++) {
    const struct ct_trace_object *object = &objects[i];
    const struct ct_trace_module *module = module_of(trace, object->fn);
    if (module != NULL) {
      uint64_t start = module->base + object->address;
      prototypes->code[prototypes->code_count++] = (struct ct_prototype_code){
          start, start + (object->size != 0 ? object->size : 1), module->image, object->fn, object->name};
    }
  }
  if (prototypes->code != NULL) {
    qsort(prototypes->code, prototypes->code_count, sizeof(*prototypes->code), by_address);
  }
}

/* As people know it: demangled, without a version. NULL: out of memory. */
static char *
object_name(const char *raw)
{
  char *plain = strndup(raw, strcspn(raw, "@"));
  char *demangled = plain != NULL ? ct_demangle(plain) : NULL;
  char *name = plain != NULL ? ct_utf8_copy(demangled != NULL ? demangled : plain) : NULL;
  free(demangled);
  free(plain);
  return name;
}

const char *
ct_view_prototypes_symbol(struct ct_view_prototypes *prototypes, uint64_t address, uint64_t *offset)
{
  if (!prototypes->has_code) {
    load_code(prototypes);
  }
  size_t low = 0, high = prototypes->code_count;
  while (low < high) { /* the first one after the address */
    size_t middle = low + (high - low) / 2;
    const struct ct_prototype_code *code = &prototypes->code[middle];
    if (code->image < prototypes->image || (code->image == prototypes->image && code->start <= address)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const struct ct_prototype_code *found = low != 0 ? &prototypes->code[low - 1] : NULL;
  if (found == NULL || found->image != prototypes->image || address >= found->end) {
    return NULL;
  }
  if (low >= 2 && found[-1].image == found->image && address < found[-1].end) {
    return NULL;
  }
  *offset = address - found->start;
  free(prototypes->symbol);
  prototypes->symbol = found->name != NULL ? object_name(found->name)
                                           : ct_utf8_copy(ct_trace_function(prototypes->trace, found->fn)->name);
  if (prototypes->symbol != NULL) {
    ct_make_printable(prototypes->symbol);
  }
  return prototypes->symbol;
}

const struct ct_prototype *
ct_view_prototype(struct ct_view_prototypes *prototypes, uint32_t fn)
{
  if (fn >= prototypes->count) {
    return NULL;
  }
  if (prototypes->of == NULL && (prototypes->of = calloc(prototypes->count, sizeof(*prototypes->of))) == NULL) {
    return NULL;
  }
  const struct ct_trace_function *function = ct_trace_function(prototypes->trace, fn);
  if (function == NULL) {
    return NULL;
  }
  bool has_module = function->module < ct_trace_module_count(prototypes->trace);
  prototypes->image = has_module ? ct_trace_module(prototypes->trace, function->module)->image : 0;
  struct ct_view_prototype *entry = &prototypes->of[fn];
  if (!entry->is_known) {
    entry->is_known = true;
    make(prototypes, function, entry);
  }
  return entry->prototype;
}

/* ---- Registers ---- */

/* Of a text: the register's, or the pointer's that the object begins with. 0: it is not there. */
static uint64_t
address_of(const struct ct_detail *detail, uint32_t argument)
{
  uint64_t address = 0;
  if ((argument & CT_DETAIL_TEXT_OF_OBJECT) == 0) {
    return detail->registers[argument];
  }
  for (uint32_t i = 0; i < detail->text_count; i++) {
    const struct ct_detail_text *object = &detail->texts[i];
    if (object->argument == (argument & ~CT_DETAIL_TEXT_OF_OBJECT) && object->bytes >= sizeof(address)) {
      memcpy(&address, object->data, sizeof(address));
    }
  }
  return address;
}

/* The stack's first word is the return-address slot; arguments come after it. */
static void
add_call(struct ct_value_registers *to, const struct ct_detail *detail, uint8_t *stack, size_t size)
{
  enum { SLOT_BYTES = 8 };
  static_assert(CT_DETAIL_RDI == 0 && CT_DETAIL_R9 == CT_INTEGER_PLACES - 1, "in the order of the places");
  memcpy(to->integers, detail->registers, sizeof(to->integers));
  to->integers_known = (1u << CT_INTEGER_PLACES) - 1;
  memcpy(to->vectors, detail->vectors, sizeof(to->vectors));
  to->vectors_known = detail->has_vectors ? UINT8_MAX : 0;
  static_assert(CT_TEXTS_KNOWN == CT_DETAIL_TEXTS_MAX, "as many as there may be");
  to->text_count = detail->text_count;
  for (uint32_t i = 0; i < detail->text_count; i++) {
    const struct ct_detail_text *text = &detail->texts[i];
    to->texts[i].address = address_of(detail, text->argument);
    to->texts[i].bytes = text->bytes < CT_STRING_SHOWN ? text->bytes : CT_STRING_SHOWN;
    memcpy(to->texts[i].data, text->data, to->texts[i].bytes);
  }
  size_t bytes = detail->stack_bytes > SLOT_BYTES ? detail->stack_bytes - SLOT_BYTES : 0;
  bytes = bytes < size ? bytes : size;
  if (bytes != 0) {
    memcpy(stack, detail->stack + SLOT_BYTES, bytes);
    to->stack = stack;
    to->stack_bytes = (uint32_t)bytes;
    to->stack_address = detail->sp + SLOT_BYTES;
  }
}

void
ct_registers_add(struct ct_value_registers *registers, const struct ct_detail *detail, uint8_t *stack, size_t size)
{
  if (!detail->is_return) {
    add_call(registers, detail, stack, size);
    return;
  }
  registers->results[0] = detail->rax;
  registers->results[1] = detail->rdx;
  registers->result_vectors[0] = detail->xmm0;
  registers->result_vectors[1] = detail->xmm1;
  registers->results_known = registers->result_vectors_known = 3;
  registers->has_error = detail->has_error;
  registers->error = detail->error;
  for (uint32_t i = 0; i < detail->text_count; i++) {
    const struct ct_detail_text *text = &detail->texts[i];
    uint32_t bytes = text->bytes < CT_STRING_SHOWN ? text->bytes : CT_STRING_SHOWN, at = registers->text_count;
    if (text->argument == CT_DETAIL_RAX && at < sizeof(registers->texts) / sizeof(registers->texts[0])) {
      registers->texts[at].address = detail->rax;
      registers->texts[at].bytes = bytes;
      memcpy(registers->texts[at].data, text->data, bytes);
      registers->text_count++;
    } else if (text->argument != CT_DETAIL_RAX && registers->out_count < CT_TEXTS_KNOWN) {
      at = registers->out_count++;
      registers->outs[at].number = text->argument;
      registers->outs[at].bytes = bytes;
      memcpy(registers->outs[at].data, text->data, bytes);
    }
  }
}

size_t
ct_registers_memory(const struct ct_value_registers *registers, uint64_t address, void *out, size_t bytes)
{
  for (uint32_t i = 0; i < registers->text_count; i++) {
    uint64_t inside = address - registers->texts[i].address;
    if (inside < registers->texts[i].bytes) {
      uint64_t left = registers->texts[i].bytes - inside;
      bytes = bytes < left ? bytes : (size_t)left;
      memcpy(out, registers->texts[i].data + inside, bytes);
      return bytes;
    }
  }
  if (address < registers->stack_address || address - registers->stack_address >= registers->stack_bytes) {
    return 0;
  }
  size_t offset = address - registers->stack_address, left = registers->stack_bytes - offset;
  bytes = bytes < left ? bytes : left;
  memcpy(out, registers->stack + offset, bytes);
  return bytes;
}

void
ct_registers_add_value(struct ct_value_registers *registers, const struct ct_event *value)
{
  uint32_t which = value->reason;
  if (which == CT_VALUE_ARG_1 || which == CT_VALUE_ARG_2) {
    which += CT_VALUE_INTEGER - CT_VALUE_ARG_1;
  }
  if (which >= CT_VALUE_INTEGER && which < CT_VALUE_INTEGER + CT_INTEGER_PLACES) {
    registers->integers[which - CT_VALUE_INTEGER] = value->value;
    registers->integers_known |= (uint8_t)(1u << (which - CT_VALUE_INTEGER));
  } else if (which >= CT_VALUE_VECTOR && which < CT_VALUE_VECTOR + CT_VECTOR_PLACES) {
    registers->vectors[which - CT_VALUE_VECTOR] = value->value;
    registers->vectors_known |= (uint8_t)(1u << (which - CT_VALUE_VECTOR));
  } else if (which >= CT_VALUE_STACK && which < CT_VALUE_STACK + CT_STACK_WORDS_KNOWN) {
    registers->words[which - CT_VALUE_STACK] = value->value;
    registers->words_known |= 1u << (which - CT_VALUE_STACK);
  } else if (which == CT_VALUE_RESULT || which == CT_VALUE_RESULT_2) {
    registers->results[which == CT_VALUE_RESULT_2] = value->value;
    registers->results_known |= which == CT_VALUE_RESULT_2 ? 2 : 1;
  } else if (which == CT_VALUE_RESULT_XMM0 || which == CT_VALUE_RESULT_XMM1) {
    registers->result_vectors[which - CT_VALUE_RESULT_XMM0] = value->value;
    registers->result_vectors_known |= (uint8_t)(1u << (which - CT_VALUE_RESULT_XMM0));
  } else if (which == CT_VALUE_ERROR) {
    registers->error = (int)value->value;
    registers->has_error = true;
  }
}

const char *
ct_value_name(uint32_t which)
{
  static const char *const names[CT_VALUE_COUNT] = {
      [CT_VALUE_ARG_1] = "argument 1",
      [CT_VALUE_ARG_2] = "argument 2",
      [CT_VALUE_RESULT] = "result",
      [CT_VALUE_INTEGER + 2] = "rdx",
      [CT_VALUE_INTEGER + 3] = "rcx",
      [CT_VALUE_INTEGER + 4] = "r8",
      [CT_VALUE_INTEGER + 5] = "r9",
      [CT_VALUE_VECTOR] = "xmm0",
      [CT_VALUE_VECTOR + 1] = "xmm1",
      [CT_VALUE_VECTOR + 2] = "xmm2",
      [CT_VALUE_VECTOR + 3] = "xmm3",
      [CT_VALUE_VECTOR + 4] = "xmm4",
      [CT_VALUE_VECTOR + 5] = "xmm5",
      [CT_VALUE_VECTOR + 6] = "xmm6",
      [CT_VALUE_VECTOR + 7] = "xmm7",
      [CT_VALUE_RESULT_2] = "result rdx",
      [CT_VALUE_RESULT_XMM0] = "result xmm0",
      [CT_VALUE_RESULT_XMM1] = "result xmm1",
      [CT_VALUE_ERROR] = "errno",
  };
  const char *name = which < CT_VALUE_COUNT ? names[which] : NULL;
  return name != NULL ? name : "stack";
}
