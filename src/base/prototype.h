/* SPDX-License-Identifier: MIT */
/*
 * What a function takes and gives, and where: types and names of its parameters and its result, and the registers that
 * they come in. Made of DWARF when a recording ends (target/prototypes.h), or of the table of known calls
 * (base/known_calls.h); in between it is a line of prototypes.tsv (docs/format.md).
 *
 * A place is at most two pieces, a letter and a number each:
 *
 *   parameter   iN  integer register N of rdi rsi rdx rcx r8 r9
 *               fN  xmmN
 *               sN  N bytes into the arguments on the stack
 *   result      i0 rax, i1 rdx, f0 xmm0, f1 xmm1, x0 st0; s0: in memory whose address is in rax
 *   either      ?   not known
 *
 * i0i1, i1f0 and so on: a small structure, whose first eight bytes are in the first piece.
 */
#ifndef CT_BASE_PROTOTYPE_H
#define CT_BASE_PROTOTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
  CT_PARAMETERS_MAX = 64,
  CT_INTEGER_PLACES = 6,
  CT_VECTOR_PLACES = 8,
};

/* Letters in prototypes.tsv. */
enum ct_type_kind {
  CT_TYPE_UNKNOWN = '?', /* something that cannot be shown but as it is */
  CT_TYPE_VOID = 'v',
  CT_TYPE_SIGNED = 'i',
  CT_TYPE_UNSIGNED = 'u',
  CT_TYPE_BOOL = 'b',
  CT_TYPE_CHAR = 'c', /* char, signed or not: shown as a character */
  CT_TYPE_FLOAT = 'f',
  CT_TYPE_COMPLEX = 'z',
  CT_TYPE_POINTER = 'p',
  CT_TYPE_ENUM = 'e',
  CT_TYPE_AGGREGATE = 'a', /* structure, union, array, vector */
  CT_TYPE_MODE = 'o',      /* octal; of known calls alone ... */
  CT_TYPE_ERROR = 'n',     /* ... as is the number of an error */
};

/* Of a pointer: what there is at its end. */
enum ct_pointee {
  CT_POINTEE_OTHER = 0,
  CT_POINTEE_TEXT = 's',     /* char *: bytes up to a zero */
  CT_POINTEE_STRING = 'S',   /* std::string of libstdc++: address, length, ... */
  CT_POINTEE_FUNCTION = 'f', /* code */
};

/* A name for a number: an enumerator, a flag. */
struct ct_constant {
  const char *name;
  uint64_t value;
};

/* Whether a number may be a set of bits. */
enum ct_constants_sets {
  CT_CONSTANTS_NUMBERS,    /* no */
  CT_CONSTANTS_WHOLE_SETS, /* an enumeration of bits: yes, when all of them have names */
  CT_CONSTANTS_FLAGS,      /* yes; bits without a name are shown as a number */
};

struct ct_constants {
  const struct ct_constant *list;
  uint32_t count;
  uint8_t sets;       /* enum ct_constants_sets */
  uint64_t enum_mask; /* of flags: these bits are one number (O_ACCMODE) */
};

struct ct_members;

struct ct_type {
  uint8_t kind;                         /* enum ct_type_kind */
  uint8_t pointee;                      /* enum ct_pointee */
  bool is_unsigned;                     /* of an enumeration */
  uint32_t bytes;                       /* 0: not known */
  uint32_t constants_number;            /* of an enumeration, and of members: its list in prototypes.tsv, from 1 up;
                                           0: none */
  const struct ct_constants *constants; /* NULL: none, or not looked up */
  const struct ct_members *members;     /* of a structure, or of the one that it points to: likewise */
  const char *name;                     /* "" where there is none */
};

/* What a structure begins with: members without bit fields, those of its bases too. */
enum { CT_MEMBERS_MAX = 24, CT_MEMBERS_BYTES = 64 };
struct ct_member {
  uint32_t offset;
  struct ct_type type;
  const char *name;
};
struct ct_members {
  struct ct_member list[CT_MEMBERS_MAX];
  uint32_t count;
  bool goes_on; /* there are more than these */
};

struct ct_place {
  char piece[2];      /* 0: none; piece[0] '?': not known */
  uint16_t number[2]; /* in bytes for 's' */
};

/* Memory that a call fills, and how much of it; of known calls alone. */
enum ct_out {
  CT_OUT_NONE = 0,
  CT_OUT_AS_RESULT, /* as many bytes as the result says */
  CT_OUT_TEXT,      /* up to a zero */
  CT_OUT_VALUE,     /* a number, a structure: what the parameter's type points to */
  CT_OUT_SOME,      /* likewise, but nothing when the result is 0 */
};

struct ct_parameter {
  struct ct_type type;
  struct ct_place place;
  const char *name;  /* "" where there is none */
  uint8_t out;       /* enum ct_out */
  uint8_t out_count; /* of a number or structure: so many of them, one after the other */
  uint8_t needs;     /* it is there only when parameter needs - 1 has one of these bits; 0: always */
  uint64_t needs_bits;
};

struct ct_prototype {
  struct ct_type result;
  struct ct_place result_place;
  bool is_variadic;
  bool sets_errno; /* when it returns -1 */
  uint32_t count;
  struct ct_parameter parameters[CT_PARAMETERS_MAX];
};

/* The fields of a line of prototypes.tsv after the id, without the line's end. */
void ct_prototype_write(FILE *out, const struct ct_prototype *prototype);
/*
 * The same back. What is in text is replaced: names point into it, printable and UTF-8. False when it is no such line;
 * the prototype is of no use then.
 */
bool ct_prototype_parse(char *text, struct ct_prototype *prototype);

/*
 * The constants of a line of them: the list is malloc'd and points into text, which is changed as above. False when it
 * is no such line.
 */
bool ct_constants_parse(char *text, struct ct_constants *constants);

/* The same of members: names point into text. */
bool ct_members_parse(char *text, struct ct_members *members);
/* A member as a field, with the tab before it. */
void ct_member_write(FILE *out, const struct ct_member *member);

/* The fields of such a line, each with a tab before it: malloc'd; NULL: out of memory. */
char *ct_constants_text(const struct ct_constant *list, uint32_t count);

/* A name as the file can have it: control characters, and what separates fields, are '?'. */
void ct_prototype_put_name(FILE *out, const char *name, bool spaces_too);

#endif
