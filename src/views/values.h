/* SPDX-License-Identifier: MIT */
/*
 * Arguments and results as people read them: a prototype and what the registers held become `path=0x55d0,
 * flags=O_RDONLY|O_CLOEXEC`, ` = -1 ENOENT`, or JSON. Pure: what is not in the registers given is not known, and shown
 * as `?`, or `...` at the end.
 */
#ifndef CT_VIEWS_VALUES_H
#define CT_VIEWS_VALUES_H

#include "base/prototype.h"
#include "views/value_sink.h"
#include "views/value_text.h"

enum {
  CT_STRING_SHOWN = 64, /* bytes of a string */
  CT_TEXTS_KNOWN = 3,   /* of a call; its result may be one more */
  CT_STACK_WORDS_KNOWN = 32,
};

/* What was recorded of one call. Bit N of a mask: number N is known. */
struct ct_value_registers {
  uint8_t integers_known, vectors_known, results_known, result_vectors_known;
  uint64_t integers[CT_INTEGER_PLACES]; /* rdi rsi rdx rcx r8 r9 */
  uint64_t vectors[CT_VECTOR_PLACES];   /* the low half of xmm0 .. xmm7 */
  uint64_t results[2];                  /* rax rdx */
  uint64_t result_vectors[2];           /* xmm0 xmm1 */
  const uint8_t *stack;                 /* the arguments there ... */
  uint32_t stack_bytes;                 /* ... as far as they are known */
  uint64_t stack_address;               /* where they were */
  uint64_t words[CT_STACK_WORDS_KNOWN]; /* single words of them, from the first on */
  uint32_t words_known;
  struct {
    uint64_t address;
    uint32_t bytes;
    uint8_t data[CT_STRING_SHOWN];
  } texts[CT_TEXTS_KNOWN + 1]; /* what arguments point to */
  uint32_t text_count;
  struct {
    uint32_t number; /* of the integer register that pointed to it */
    uint32_t bytes;
    uint8_t data[CT_STRING_SHOWN];
  } outs[CT_TEXTS_KNOWN]; /* memory that the call has filled */
  uint32_t out_count;
  bool has_error; /* errno after the call is known */
  int error;
};

static inline bool
ct_registers_have_arguments(const struct ct_value_registers *registers)
{
  return (registers->integers_known | registers->vectors_known | registers->words_known) != 0 ||
         registers->stack_bytes != 0;
}

static inline bool
ct_registers_have_result(const struct ct_value_registers *registers)
{
  return (registers->results_known | registers->result_vectors_known) != 0;
}

/* What is known besides registers. Each function may be NULL, and gives false for what it does not know. */
struct ct_value_context {
  void *arg;
  /* The function that the address lies in, and how far past its entry. */
  const char *(*symbol)(void *arg, uint64_t address, uint64_t *offset);
  /* Up to `bytes` bytes of the program's memory at the time of the call; gives how many, 0: none. */
  size_t (*memory)(void *arg, uint64_t address, void *out, size_t bytes);
};

/* "a=1, b=?, ...": without the parentheses. */
void ct_values_put_arguments(struct ct_value_text *out, const struct ct_prototype *prototype,
                             const struct ct_value_registers *registers, const struct ct_value_context *context);
/* " = 3", and what the call has filled in, " = 3 {buf="abc"}"; nothing for void, and where nothing was recorded. */
void ct_values_put_result(struct ct_value_text *out, const struct ct_prototype *prototype,
                          const struct ct_value_registers *registers, const struct ct_value_context *context);
/*
 * [{"name":"fd","type":"int","raw":"0x3","value":3}, ...] and {"type":"int","raw":"0x3","value":3}: raw and what
 * follows only where they were recorded.
 */
void ct_values_give_arguments(struct ct_value_sink *sink, const struct ct_prototype *prototype,
                              const struct ct_value_registers *registers, const struct ct_value_context *context);
void ct_values_give_result(struct ct_value_sink *sink, const struct ct_prototype *prototype,
                           const struct ct_value_registers *registers, const struct ct_value_context *context);
/* As text, and as a value of jansson's; NULL: out of memory. */
void ct_values_put_json_arguments(struct ct_value_text *out, const struct ct_prototype *prototype,
                                  const struct ct_value_registers *registers, const struct ct_value_context *context);
void ct_values_put_json_result(struct ct_value_text *out, const struct ct_prototype *prototype,
                               const struct ct_value_registers *registers, const struct ct_value_context *context);
json_t *ct_values_json_arguments(const struct ct_prototype *prototype, const struct ct_value_registers *registers,
                                 const struct ct_value_context *context);
json_t *ct_values_json_result(const struct ct_prototype *prototype, const struct ct_value_registers *registers,
                              const struct ct_value_context *context);

#endif
