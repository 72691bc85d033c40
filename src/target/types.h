/* SPDX-License-Identifier: MIT */
/* Types of C and C++ from DWARF: what a value of one looks like, and how the System V convention passes it. */
#ifndef CT_TARGET_TYPES_H
#define CT_TARGET_TYPES_H

#include <elfutils/libdw.h>
#include <stdio.h>

#include "base/prototype.h"

enum { CT_TYPE_NAME_BYTES = 128 };

/* How eight bytes of a value are passed. */
enum ct_class {
  CT_CLASS_NONE = 0,
  CT_CLASS_INTEGER,
  CT_CLASS_SSE,
  CT_CLASS_SSEUP, /* the upper half of a vector register */
  CT_CLASS_X87,
  CT_CLASS_MEMORY,
  CT_CLASS_UNKNOWN,
};

struct ct_passing {
  uint8_t classes[2]; /* enum ct_class; MEMORY, X87 and UNKNOWN stand in both */
  bool by_reference;  /* the caller's copy is passed by its address (a class with a destructor) */
  bool is_complex_x87;
  uint32_t bytes, alignment;
};

/* What the DIE says is not believed: no more than this many steps are taken for one type. */
struct ct_type_reader {
  bool is_c;      /* its structures are copied as they are */
  size_t *budget; /* entries left for the whole file */
};

/* The type of an entry (DW_AT_type); false: none, which is void. */
bool ct_dwarf_type_of(Dwarf_Die *die, Dwarf_Die *type);
/* Without typedefs and qualifiers; false: void, or too many of them. */
bool ct_dwarf_type_plain(Dwarf_Die *type, Dwarf_Die *plain);
/* "const char *"; "void" for NULL. */
void ct_dwarf_type_name(Dwarf_Die *type, char name[CT_TYPE_NAME_BYTES]);
/* Kind, bytes and pointee. type may be NULL: void. */
void ct_dwarf_type_describe(Dwarf_Die *type, struct ct_type *out);
/*
 * The fields of a line of prototypes.tsv with the members of a structure, or of the one that a pointer points to:
 * nothing when there are none, or it is a std::string. Each entry looked at is taken off *budget.
 */
void ct_dwarf_type_members(Dwarf_Die *type, size_t *budget, FILE *out);
bool ct_dwarf_is_string(Dwarf_Die *type); /* std::string of libstdc++ */
void ct_dwarf_type_passing(const struct ct_type_reader *reader, Dwarf_Die *type, struct ct_passing *out);

#endif
