/* SPDX-License-Identifier: MIT */
/*
 * Types from DWARF; see types.h. A value of up to 16 bytes is classified by eights as in the System V ABI (x86-64
 * psABI, 3.2.3): each field gives a class to the eight bytes that it lies in, INTEGER wins over SSE, and whatever is
 * larger, not aligned or of long double goes to memory. Vectors of 32 and 64 bytes are not followed.
 *
 * DWARF is foreign input: every walk has a limit of depth, and all of them take from one budget of entries.
 */
#include "target/types.h"

#include <dwarf.h>
#include <stdio.h>
#include <string.h>

enum {
  QUALIFIERS_MAX = 32, /* typedefs, const, ... on the way to a type */
  NAME_DEPTH_MAX = 8,  /* pointers to pointers, in a name */
  FIELD_DEPTH_MAX = 8, /* structures in structures */
  ELEMENTS_MAX = 16,   /* of an array in a small structure */
  STRING_BYTES = 32,   /* sizeof(std::string) of libstdc++ */
};

bool
ct_dwarf_type_of(Dwarf_Die *die, Dwarf_Die *type)
{
  Dwarf_Attribute attribute;
  return dwarf_attr_integrate(die, DW_AT_type, &attribute) != NULL && dwarf_formref_die(&attribute, type) != NULL;
}

bool
ct_dwarf_type_plain(Dwarf_Die *type, Dwarf_Die *plain)
{
  *plain = *type;
  for (int i = 0; i < QUALIFIERS_MAX; i++) {
    switch (dwarf_tag(plain)) {
    case DW_TAG_typedef:
    case DW_TAG_const_type:
    case DW_TAG_volatile_type:
    case DW_TAG_restrict_type:
    case DW_TAG_atomic_type:
    case DW_TAG_immutable_type: {
      Dwarf_Die next;
      if (!ct_dwarf_type_of(plain, &next)) {
        return false;
      }
      *plain = next;
      break;
    }
    default:
      return true;
    }
  }
  return false;
}

/* ---- Names ---- */

static void
append(char name[CT_TYPE_NAME_BYTES], const char *text)
{
  size_t length = strlen(name);
  snprintf(name + length, CT_TYPE_NAME_BYTES - length, "%s", text);
}

static const char *
word_before(int tag)
{
  switch (tag) {
  case DW_TAG_structure_type:
    return "struct ";
  case DW_TAG_union_type:
    return "union ";
  case DW_TAG_enumeration_type:
    return "enum ";
  default:
    return "";
  }
}

static bool
is_cplusplus(Dwarf_Die *die)
{
  Dwarf_Die unit;
  if (dwarf_diecu(die, &unit, NULL, NULL) == NULL) {
    return false;
  }
  switch (dwarf_srclang(&unit)) {
  case DW_LANG_C_plus_plus:
  case DW_LANG_C_plus_plus_03:
  case DW_LANG_C_plus_plus_11:
  case DW_LANG_C_plus_plus_14:
    return true;
  default:
    return false;
  }
}

static void
put_name(Dwarf_Die *type, char name[CT_TYPE_NAME_BYTES], int depth)
{
  Dwarf_Die inner;
  const char *own = type != NULL ? dwarf_diename(type) : NULL;
  int tag = type != NULL ? dwarf_tag(type) : 0;
  Dwarf_Die *next = type != NULL && ct_dwarf_type_of(type, &inner) ? &inner : NULL;
  int inner_tag = next != NULL ? dwarf_tag(next) : 0;
  bool is_pointer = inner_tag == DW_TAG_pointer_type;
  if (type == NULL) {
    append(name, "void");
    return;
  }
  if (depth == NAME_DEPTH_MAX) {
    append(name, "...");
    return;
  }
  switch (tag) {
  case DW_TAG_const_type:
  case DW_TAG_volatile_type: {
    const char *word = tag == DW_TAG_const_type ? "const" : "volatile";
    if (!is_pointer) {
      append(name, word);
      append(name, " ");
    }
    put_name(next, name, depth + 1);
    if (is_pointer) {
      append(name, word);
    }
    break;
  }
  case DW_TAG_restrict_type:
  case DW_TAG_atomic_type:
    put_name(next, name, depth + 1);
    break;
  case DW_TAG_pointer_type:
  case DW_TAG_reference_type:
  case DW_TAG_rvalue_reference_type:
    put_name(next, name, depth + 1);
    append(name, is_pointer ? "" : " ");
    append(name, tag == DW_TAG_pointer_type ? "*" : tag == DW_TAG_reference_type ? "&" : "&&");
    break;
  case DW_TAG_array_type:
    put_name(next, name, depth + 1);
    append(name, "[]");
    break;
  case DW_TAG_subroutine_type:
    append(name, "function");
    break;
  case DW_TAG_ptr_to_member_type:
    append(name, "member pointer");
    break;
  default:
    append(name, own != NULL && is_cplusplus(type) ? "" : word_before(tag));
    append(name, own != NULL ? own : "(no name)");
  }
}

void
ct_dwarf_type_name(Dwarf_Die *type, char name[CT_TYPE_NAME_BYTES])
{
  name[0] = '\0';
  put_name(type, name, 0);
  /* What was cut in the middle of a character is made whole by the reader. */
}

/* ---- What it looks like ---- */

static uint32_t
size_of(Dwarf_Die *type)
{
  Dwarf_Word size;
  return dwarf_aggregate_size(type, &size) == 0 && size <= UINT32_MAX ? (uint32_t)size : 0;
}

static uint64_t
number_of(Dwarf_Die *die, unsigned name, uint64_t otherwise)
{
  Dwarf_Attribute attribute;
  Dwarf_Word value;
  bool has = dwarf_attr_integrate(die, name, &attribute) != NULL && dwarf_formudata(&attribute, &value) == 0;
  return has ? value : otherwise;
}

static bool
is_std_string(Dwarf_Die *type)
{
  const char *name = dwarf_diename(type);
  return name != NULL && size_of(type) == STRING_BYTES &&
         strcmp(name, "basic_string<char, std::char_traits<char>, std::allocator<char> >") == 0;
}

static uint8_t
pointee_of(Dwarf_Die *pointer)
{
  Dwarf_Die type, plain;
  if (!ct_dwarf_type_of(pointer, &type) || !ct_dwarf_type_plain(&type, &plain)) {
    return CT_POINTEE_OTHER;
  }
  switch (dwarf_tag(&plain)) {
  case DW_TAG_subroutine_type:
    return CT_POINTEE_FUNCTION;
  case DW_TAG_base_type: {
    uint64_t encoding = number_of(&plain, DW_AT_encoding, 0);
    bool is_text = encoding == DW_ATE_signed_char || (encoding == DW_ATE_unsigned_char && size_of(&plain) == 1);
    return is_text && dwarf_tag(pointer) == DW_TAG_pointer_type ? CT_POINTEE_TEXT : CT_POINTEE_OTHER;
  }
  case DW_TAG_structure_type:
  case DW_TAG_class_type:
    return is_std_string(&plain) ? CT_POINTEE_STRING : CT_POINTEE_OTHER;
  default:
    return CT_POINTEE_OTHER;
  }
}

static uint8_t
kind_of_base(Dwarf_Die *type)
{
  switch (number_of(type, DW_AT_encoding, 0)) {
  case DW_ATE_boolean:
    return CT_TYPE_BOOL;
  case DW_ATE_float:
    return CT_TYPE_FLOAT;
  case DW_ATE_complex_float:
    return CT_TYPE_COMPLEX;
  case DW_ATE_signed:
    return CT_TYPE_SIGNED;
  case DW_ATE_unsigned:
    return CT_TYPE_UNSIGNED;
  case DW_ATE_signed_char:
  case DW_ATE_unsigned_char:
  case DW_ATE_UTF:
    return CT_TYPE_CHAR;
  default:
    return CT_TYPE_UNKNOWN;
  }
}

static bool
is_unsigned_enum(Dwarf_Die *type)
{
  Dwarf_Die under, plain;
  if (!ct_dwarf_type_of(type, &under) || !ct_dwarf_type_plain(&under, &plain)) {
    return false;
  }
  uint64_t encoding = number_of(&plain, DW_AT_encoding, 0);
  return encoding == DW_ATE_unsigned || encoding == DW_ATE_unsigned_char || encoding == DW_ATE_boolean;
}

void
ct_dwarf_type_describe(Dwarf_Die *type, struct ct_type *out)
{
  Dwarf_Die plain;
  *out = (struct ct_type){.kind = CT_TYPE_VOID, .name = ""};
  if (type == NULL) {
    return;
  }
  if (!ct_dwarf_type_plain(type, &plain)) {
    Dwarf_Die next;
    out->kind = ct_dwarf_type_of(&plain, &next) ? CT_TYPE_UNKNOWN : CT_TYPE_VOID; /* "const void" */
    return;
  }
  out->bytes = size_of(&plain);
  switch (dwarf_tag(&plain)) {
  case DW_TAG_base_type:
    out->kind = kind_of_base(&plain);
    break;
  case DW_TAG_pointer_type:
  case DW_TAG_reference_type:
  case DW_TAG_rvalue_reference_type:
    out->kind = CT_TYPE_POINTER;
    out->bytes = 8;
    out->pointee = pointee_of(&plain);
    break;
  case DW_TAG_unspecified_type: /* decltype(nullptr) */
    out->kind = CT_TYPE_POINTER;
    out->bytes = 8;
    break;
  case DW_TAG_enumeration_type:
    out->kind = CT_TYPE_ENUM;
    out->is_unsigned = is_unsigned_enum(&plain);
    break;
  case DW_TAG_structure_type:
  case DW_TAG_class_type:
  case DW_TAG_union_type:
  case DW_TAG_array_type:
  case DW_TAG_ptr_to_member_type:
    out->kind = CT_TYPE_AGGREGATE;
    break;
  default:
    out->kind = CT_TYPE_UNKNOWN;
  }
}

/* ---- Members ---- */

enum { BASES_MAX = 4 };

struct members {
  FILE *out;
  size_t *budget;
  uint32_t count;
  bool goes_on;
};

bool
ct_dwarf_is_string(Dwarf_Die *type)
{
  Dwarf_Die plain;
  return ct_dwarf_type_plain(type, &plain) && is_std_string(&plain);
}

static void put_members(struct members *members, Dwarf_Die *structure, uint64_t at, int depth);

static void
put_member(struct members *members, Dwarf_Die *die, uint64_t at, int depth)
{
  Dwarf_Die type, plain;
  struct ct_member member = {.name = dwarf_diename(die)};
  char name[CT_TYPE_NAME_BYTES];
  uint64_t offset = at + number_of(die, DW_AT_data_member_location, UINT32_MAX);
  if (!ct_dwarf_type_of(die, &type) || dwarf_hasattr(die, DW_AT_bit_size) || dwarf_hasattr(die, DW_AT_artificial)) {
    members->goes_on |= dwarf_hasattr(die, DW_AT_bit_size) != 0;
    return;
  }
  bool is_part = dwarf_tag(die) == DW_TAG_inheritance || member.name == NULL;
  if (is_part && ct_dwarf_type_plain(&type, &plain) && dwarf_tag(&plain) != DW_TAG_union_type && depth < BASES_MAX &&
      !dwarf_hasattr(die, DW_AT_virtuality)) {
    put_members(members, &plain, offset, depth + 1);
    return;
  }
  ct_dwarf_type_describe(&type, &member.type);
  if (is_part || offset + member.type.bytes > CT_MEMBERS_BYTES || members->count == CT_MEMBERS_MAX) {
    members->goes_on = true;
    return;
  }
  ct_dwarf_type_name(&type, name);
  member.offset = (uint32_t)offset;
  member.type.name = name;
  ct_member_write(members->out, &member);
  members->count++;
}

static void
put_members(struct members *members, Dwarf_Die *structure, uint64_t at, int depth)
{
  Dwarf_Die child;
  for (bool more = dwarf_child(structure, &child) == 0; more && *members->budget != 0;
       more = dwarf_siblingof(&child, &child) == 0) {
    int tag = dwarf_tag(&child);
    --*members->budget;
    bool is_static = dwarf_hasattr(&child, DW_AT_external) || dwarf_hasattr(&child, DW_AT_declaration);
    if ((tag == DW_TAG_member && !is_static) || tag == DW_TAG_inheritance) {
      if (!dwarf_hasattr(&child, DW_AT_data_member_location)) {
        members->goes_on |= tag == DW_TAG_inheritance || dwarf_hasattr(&child, DW_AT_bit_size);
        continue; /* DWARF 4 has it of all others */
      }
      put_member(members, &child, at, depth);
    }
  }
}

void
ct_dwarf_type_members(Dwarf_Die *type, size_t *budget, FILE *out)
{
  Dwarf_Die plain, target;
  struct members members = {.out = out, .budget = budget};
  if (!ct_dwarf_type_plain(type, &plain)) {
    return;
  }
  int tag = dwarf_tag(&plain);
  if (tag == DW_TAG_pointer_type || tag == DW_TAG_reference_type || tag == DW_TAG_rvalue_reference_type) {
    if (!ct_dwarf_type_of(&plain, &target) || !ct_dwarf_type_plain(&target, &plain)) {
      return;
    }
    tag = dwarf_tag(&plain);
  }
  if ((tag == DW_TAG_structure_type || tag == DW_TAG_class_type) && !is_std_string(&plain)) {
    put_members(&members, &plain, 0, 0);
    fputs(members.count != 0 && members.goes_on ? "\t..." : "", out);
  }
}

/* ---- How it is passed ---- */

struct walk {
  const struct ct_type_reader *reader;
  uint8_t classes[2];
  uint32_t alignment;
  bool by_reference;
  bool is_large; /* it is in memory: only its alignment counts, and whether it is copied as it is */
  bool is_packed;
};

static bool
spend(const struct ct_type_reader *reader)
{
  *reader->budget -= *reader->budget != 0;
  return *reader->budget != 0;
}

static void
set_all(struct walk *walk, uint8_t class)
{
  walk->classes[0] = walk->classes[1] = class;
}

/* A field of one class at an offset. */
static void
merge(struct walk *walk, uint64_t offset, uint64_t bytes, uint8_t class)
{
  if (walk->classes[0] == CT_CLASS_UNKNOWN) {
    return;
  }
  if (walk->is_large) {
    bool is_power = bytes != 0 && bytes <= 64 && (bytes & (bytes - 1)) == 0;
    walk->alignment = is_power && bytes > walk->alignment ? (uint32_t)bytes : walk->alignment;
    walk->is_packed |= is_power && offset % bytes != 0;
    return;
  }
  if (bytes == 0 || bytes > 16 || offset + bytes > 16) {
    set_all(walk, CT_CLASS_UNKNOWN);
    return;
  }
  walk->alignment = bytes > walk->alignment ? (uint32_t)bytes : walk->alignment;
  if (offset % bytes != 0 || walk->classes[0] == CT_CLASS_MEMORY) {
    set_all(walk, CT_CLASS_MEMORY); /* packed */
    return;
  }
  for (uint64_t i = offset / 8; i <= (offset + bytes - 1) / 8; i++) {
    uint8_t wanted = class == CT_CLASS_SSE && bytes == 16 && i == 1 ? CT_CLASS_SSEUP : class;
    uint8_t *had = &walk->classes[i];
    if (*had == CT_CLASS_NONE || *had == wanted) {
      *had = wanted;
    } else if (*had == CT_CLASS_X87 || wanted == CT_CLASS_X87) {
      set_all(walk, CT_CLASS_MEMORY);
      return;
    } else {
      *had = *had == CT_CLASS_INTEGER || wanted == CT_CLASS_INTEGER ? CT_CLASS_INTEGER : CT_CLASS_SSE;
    }
  }
}

static bool
is_x87(Dwarf_Die *type)
{
  const char *name = dwarf_diename(type);
  return name != NULL && strstr(name, "long double") != NULL;
}

static void
merge_base(struct walk *walk, Dwarf_Die *type, uint64_t offset)
{
  uint32_t bytes = size_of(type);
  switch (number_of(type, DW_AT_encoding, 0)) {
  case DW_ATE_boolean:
  case DW_ATE_signed:
  case DW_ATE_unsigned:
  case DW_ATE_signed_char:
  case DW_ATE_unsigned_char:
  case DW_ATE_UTF:
    merge(walk, offset, bytes, CT_CLASS_INTEGER);
    break;
  case DW_ATE_float:
  case DW_ATE_decimal_float:
    if (bytes == 16 && is_x87(type)) {
      merge(walk, offset, bytes, CT_CLASS_X87);
    } else {
      merge(walk, offset, bytes, CT_CLASS_SSE);
    }
    break;
  case DW_ATE_complex_float:
    if (bytes == 8 || bytes == 16) {
      merge(walk, offset, bytes / 2, CT_CLASS_SSE);
      merge(walk, offset + bytes / 2, bytes / 2, CT_CLASS_SSE);
      break;
    }
    /* fall through */
  default:
    set_all(walk, CT_CLASS_UNKNOWN);
  }
}

static void merge_type(struct walk *walk, Dwarf_Die *type, uint64_t offset, int depth);

static void
merge_array(struct walk *walk, Dwarf_Die *type, uint64_t offset, int depth)
{
  Dwarf_Die element;
  uint64_t bytes = size_of(type);
  uint64_t one = ct_dwarf_type_of(type, &element) ? size_of(&element) : 0;
  if (number_of(type, DW_AT_GNU_vector, 0) != 0 || dwarf_hasattr(type, DW_AT_GNU_vector)) {
    merge(walk, offset, bytes, bytes <= 16 ? CT_CLASS_SSE : CT_CLASS_UNKNOWN);
    return;
  }
  if (bytes == 0) {
    return; /* a flexible one at the end */
  }
  if (walk->is_large && one != 0) {
    merge_type(walk, &element, offset, depth + 1);
    return;
  }
  if (one == 0 || bytes / one > ELEMENTS_MAX) {
    set_all(walk, CT_CLASS_UNKNOWN);
    return;
  }
  for (uint64_t at = 0; at + one <= bytes; at += one) {
    merge_type(walk, &element, offset + at, depth + 1);
  }
}

/* The function that a class declares is its destructor or copies it, and is not the compiler's own. */
static bool
is_special(Dwarf_Die *class, Dwarf_Die *function)
{
  const char *name = dwarf_diename(function), *own = dwarf_diename(class);
  uint64_t defaulted = number_of(function, DW_AT_defaulted, DW_DEFAULTED_no);
  if (name == NULL || own == NULL || defaulted == DW_DEFAULTED_in_class || dwarf_hasattr(function, DW_AT_artificial)) {
    return false;
  }
  if (name[0] == '~') {
    return true;
  }
  size_t length = strcspn(own, "<");
  Dwarf_Die parameter, type, referenced, plain;
  if (strncmp(name, own, length) != 0 || (name[length] != '\0' && name[length] != '<') ||
      dwarf_child(function, &parameter) != 0 || dwarf_siblingof(&parameter, &parameter) != 0 ||
      dwarf_tag(&parameter) != DW_TAG_formal_parameter || !ct_dwarf_type_of(&parameter, &type)) {
    return false;
  }
  int tag = dwarf_tag(&type);
  return (tag == DW_TAG_reference_type || tag == DW_TAG_rvalue_reference_type) &&
         ct_dwarf_type_of(&type, &referenced) && ct_dwarf_type_plain(&referenced, &plain) && plain.addr == class->addr;
}

/* What is written at a large type or one of its fields: __attribute__((aligned)), alignas. */
static void
align(struct walk *walk, Dwarf_Die *die)
{
  uint64_t alignment = walk->is_large ? number_of(die, DW_AT_alignment, 0) : 0;
  if (alignment > walk->alignment && alignment <= 64 && (alignment & (alignment - 1)) == 0) {
    walk->alignment = (uint32_t)alignment;
  }
}

static void
merge_members(struct walk *walk, Dwarf_Die *type, uint64_t offset, int depth)
{
  Dwarf_Die child;
  uint64_t convention = number_of(type, DW_AT_calling_convention, 0);
  if (convention == DW_CC_pass_by_reference) {
    walk->by_reference = true;
    return;
  }
  if (dwarf_hasattr(type, DW_AT_declaration) || depth == FIELD_DEPTH_MAX) {
    set_all(walk, CT_CLASS_UNKNOWN);
    return;
  }
  align(walk, type);
  bool ask = !walk->reader->is_c && convention != DW_CC_pass_by_value;
  if (ask && dwarf_hasattr(type, DW_AT_containing_type)) { /* it has a table of virtual functions */
    walk->by_reference = true;
    return;
  }
  if (dwarf_child(type, &child) != 0) {
    return;
  }
  do {
    Dwarf_Die member;
    int tag = dwarf_tag(&child);
    if (!spend(walk->reader)) {
      set_all(walk, CT_CLASS_UNKNOWN);
      return;
    }
    if (tag == DW_TAG_subprogram && ask && is_special(type, &child)) {
      walk->by_reference = true;
      return;
    }
    if (tag == DW_TAG_variant_part || (tag == DW_TAG_inheritance && number_of(&child, DW_AT_virtuality, 0) != 0)) {
      set_all(walk, CT_CLASS_UNKNOWN);
      walk->by_reference = tag == DW_TAG_inheritance;
      return;
    }
    if ((tag != DW_TAG_member && tag != DW_TAG_inheritance) || dwarf_hasattr(&child, DW_AT_external) ||
        dwarf_hasattr(&child, DW_AT_declaration) || !ct_dwarf_type_of(&child, &member)) {
      continue;
    }
    align(walk, &child);
    uint64_t bit = number_of(&child, DW_AT_data_bit_offset, UINT64_MAX);
    uint64_t at = offset + number_of(&child, DW_AT_data_member_location, 0);
    if (bit != UINT64_MAX) {
      merge(walk, offset + bit / 8, 1, CT_CLASS_INTEGER);
    } else if (dwarf_hasattr(&child, DW_AT_bit_size) && !walk->is_large) { /* as in DWARF 3: somewhere in that unit */
      set_all(walk, CT_CLASS_UNKNOWN);
    } else {
      merge_type(walk, &member, at, depth + 1);
    }
  } while (!walk->by_reference && walk->classes[0] != CT_CLASS_UNKNOWN && dwarf_siblingof(&child, &child) == 0);
}

static void
merge_type(struct walk *walk, Dwarf_Die *type, uint64_t offset, int depth)
{
  Dwarf_Die plain;
  if (depth >= FIELD_DEPTH_MAX || !spend(walk->reader) || !ct_dwarf_type_plain(type, &plain)) {
    set_all(walk, CT_CLASS_UNKNOWN);
    return;
  }
  switch (dwarf_tag(&plain)) {
  case DW_TAG_base_type:
    merge_base(walk, &plain, offset);
    break;
  case DW_TAG_pointer_type:
  case DW_TAG_reference_type:
  case DW_TAG_rvalue_reference_type:
  case DW_TAG_unspecified_type:
    merge(walk, offset, 8, CT_CLASS_INTEGER);
    break;
  case DW_TAG_enumeration_type:
    merge(walk, offset, size_of(&plain), CT_CLASS_INTEGER);
    break;
  case DW_TAG_ptr_to_member_type: {
    Dwarf_Die member, pointed;
    bool is_function = ct_dwarf_type_of(&plain, &member) && ct_dwarf_type_plain(&member, &pointed) &&
                       dwarf_tag(&pointed) == DW_TAG_subroutine_type;
    merge(walk, offset, 8, CT_CLASS_INTEGER);
    if (is_function) {
      merge(walk, offset + 8, 8, CT_CLASS_INTEGER);
    }
    break;
  }
  case DW_TAG_structure_type:
  case DW_TAG_class_type:
  case DW_TAG_union_type:
    merge_members(walk, &plain, offset, depth);
    break;
  case DW_TAG_array_type:
    merge_array(walk, &plain, offset, depth);
    break;
  default:
    set_all(walk, CT_CLASS_UNKNOWN);
  }
}

/* Of what is too large for registers: a class with a destructor is passed by its address, the rest in memory. */
static void
pass_large(const struct ct_type_reader *reader, Dwarf_Die *plain, struct ct_passing *out)
{
  struct walk walk = {.reader = reader, .is_large = true, .alignment = 1};
  int tag = dwarf_tag(plain);
  bool is_class = tag == DW_TAG_structure_type || tag == DW_TAG_class_type || tag == DW_TAG_union_type;
  if (is_class) {
    merge_members(&walk, plain, 0, 0);
  }
  bool by_value = reader->is_c || number_of(plain, DW_AT_calling_convention, 0) == DW_CC_pass_by_value;
  out->by_reference = walk.by_reference && !by_value;
  bool is_known = is_class && (by_value || walk.by_reference || walk.classes[0] != CT_CLASS_UNKNOWN);
  out->classes[0] = out->classes[1] = is_known ? CT_CLASS_MEMORY : CT_CLASS_UNKNOWN;
  bool is_aligned = !walk.is_packed && walk.alignment > 8 && out->bytes % walk.alignment == 0;
  uint64_t alignment =
      number_of(plain, DW_AT_alignment, is_aligned ? walk.alignment : 0); /* packed and aligned: what is said */
  out->alignment = alignment > 8 && alignment <= 64 ? (uint32_t)alignment : 8;
}

void
ct_dwarf_type_passing(const struct ct_type_reader *reader, Dwarf_Die *type, struct ct_passing *out)
{
  Dwarf_Die plain;
  *out = (struct ct_passing){.classes = {CT_CLASS_UNKNOWN, CT_CLASS_UNKNOWN}, .alignment = 8};
  if (!ct_dwarf_type_plain(type, &plain)) {
    return;
  }
  out->bytes = size_of(&plain);
  if (dwarf_tag(&plain) == DW_TAG_base_type && out->bytes == 32 && is_x87(&plain)) {
    out->classes[0] = out->classes[1] = CT_CLASS_X87;
    out->is_complex_x87 = true;
    out->alignment = 16;
    return;
  }
  if (out->bytes > 16) {
    pass_large(reader, &plain, out);
    return;
  }
  struct walk walk = {.reader = reader, .alignment = 1};
  merge_type(&walk, type, 0, 0);
  memcpy(out->classes, walk.classes, sizeof(out->classes));
  out->by_reference = walk.by_reference;
  out->alignment = walk.alignment > 8 ? walk.alignment : 8;
}
