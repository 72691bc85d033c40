/* SPDX-License-Identifier: MIT */
/*
 * Prototypes from DWARF; see prototypes.h.
 *
 * Places follow from the types in order (System V ABI): integers take rdi rsi rdx rcx r8 r9, floating point xmm0 to
 * xmm7, what does not fit goes to the stack; a result in memory takes rdi for its address. From the first type that is
 * not understood on, places are not known, and neither are they in languages with conventions of their own.
 *
 * Compilers change functions that only they call (gcc's .isra and .constprop clones, clang's argument promotion). In
 * optimised code DWARF says in which register a parameter is at the entry. When that is another register than the
 * convention's, or the symbol is a clone's, only what is said so counts.
 */
#include "target/prototypes.h"

#include <dwarf.h>
#include <stdlib.h>
#include <string.h>

#include "target/debuginfo.h"
#include "target/types.h"

enum {
  ENUMERATORS_MAX = 1024,
  KNOWN_ENUMS = 64, /* a power of two */
};

enum state { NOT_FOUND, FOUND, FOUND_BY_NAME };

/* The enumeration whose entry lies there has this number. */
struct known_enum {
  const void *addr;
  uint32_t number;
};

struct reading {
  const struct ct_prototype_wanted *wanted;
  size_t count;
  uint8_t *states; /* enum state of each */
  const struct ct_prototype_sink *sink;
  size_t budget; /* entries left: there cannot be more of them than bytes */
  int language;  /* of the unit */
  struct known_enum enums[KNOWN_ENUMS], structures[KNOWN_ENUMS];
  struct ct_constant enumerators[ENUMERATORS_MAX];
  struct ct_prototype prototype;
  char names[CT_PARAMETERS_MAX + 1][CT_TYPE_NAME_BYTES];
};

/* Registers and stack that are taken by the parameters so far. */
struct taken {
  uint16_t integers, vectors;
  uint32_t stack;
  bool is_lost; /* not known any more */
};

static size_t
find(const struct reading *reading, uint64_t address)
{
  size_t low = 0, high = reading->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (reading->wanted[middle].address < address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static uint32_t
enum_number(struct reading *reading, Dwarf_Die *type)
{
  Dwarf_Die plain, child;
  uint32_t count = 0;
  if (!ct_dwarf_type_plain(type, &plain) || dwarf_child(&plain, &child) != 0) {
    return 0;
  }
  struct known_enum *known = &reading->enums[((uintptr_t)plain.addr >> 2) & (KNOWN_ENUMS - 1)];
  if (known->addr == plain.addr) {
    return known->number;
  }
  do {
    Dwarf_Attribute attribute;
    Dwarf_Sword value;
    reading->budget -= reading->budget != 0;
    const char *name = dwarf_tag(&child) == DW_TAG_enumerator ? dwarf_diename(&child) : NULL;
    if (name != NULL && name[0] != '\0' && dwarf_attr(&child, DW_AT_const_value, &attribute) != NULL &&
        dwarf_formsdata(&attribute, &value) == 0) {
      reading->enumerators[count++] = (struct ct_constant){name, (uint64_t)value};
    }
  } while (count < ENUMERATORS_MAX && reading->budget != 0 && dwarf_siblingof(&child, &child) == 0);
  *known = (struct known_enum){
      plain.addr, count != 0 ? reading->sink->constants(reading->sink->arg, reading->enumerators, count) : 0};
  return known->number;
}

/* The list of the members of a structure, or of the one that is pointed to; 0: none. */
static uint32_t
members_number(struct reading *reading, Dwarf_Die *type)
{
  Dwarf_Die plain;
  char *text = NULL;
  size_t size;
  if (!ct_dwarf_type_plain(type, &plain)) {
    return 0;
  }
  struct known_enum *known = &reading->structures[((uintptr_t)plain.addr >> 2) & (KNOWN_ENUMS - 1)];
  if (known->addr == plain.addr) {
    return known->number;
  }
  FILE *out = open_memstream(&text, &size);
  if (out == NULL) {
    return 0;
  }
  ct_dwarf_type_members(&plain, &reading->budget, out);
  bool ok = fclose(out) == 0 && size != 0;
  *known = (struct known_enum){plain.addr, ok ? reading->sink->members(reading->sink->arg, text) : 0};
  free(text);
  return known->number;
}

static void
describe(struct reading *reading, Dwarf_Die *type, struct ct_type *out, char name[CT_TYPE_NAME_BYTES])
{
  ct_dwarf_type_describe(type, out);
  ct_dwarf_type_name(type, name);
  out->name = name;
  if (out->kind == CT_TYPE_ENUM) {
    out->constants_number = enum_number(reading, type);
  } else if ((out->kind == CT_TYPE_POINTER && out->pointee == CT_POINTEE_OTHER) || out->kind == CT_TYPE_AGGREGATE) {
    out->constants_number = members_number(reading, type);
  }
}

/* ---- Places ---- */

static void
on_stack(struct taken *taken, const struct ct_passing *passing, struct ct_place *place)
{
  uint32_t alignment = passing->alignment > 8 ? passing->alignment : 8;
  taken->stack = (taken->stack + alignment - 1) & ~(alignment - 1);
  uint64_t end = (uint64_t)taken->stack + ((passing->bytes + 7ull) & ~7ull);
  if (end > UINT16_MAX) {
    taken->is_lost = true;
    *place = (struct ct_place){{'?'}, {0}};
    return;
  }
  *place = (struct ct_place){{'s'}, {(uint16_t)taken->stack}};
  taken->stack = (uint32_t)end;
}

static void
place_parameter(struct taken *taken, struct ct_passing passing, struct ct_place *place)
{
  if (passing.by_reference) {
    passing = (struct ct_passing){.classes = {CT_CLASS_INTEGER}, .bytes = 8, .alignment = 8};
  }
  taken->is_lost |= passing.classes[0] == CT_CLASS_UNKNOWN;
  *place = (struct ct_place){{0}};
  if (taken->is_lost) {
    place->piece[0] = '?';
    return;
  }
  if (passing.classes[0] == CT_CLASS_MEMORY || passing.classes[0] == CT_CLASS_X87) {
    on_stack(taken, &passing, place);
    return;
  }
  uint16_t integers = 0, vectors = 0;
  size_t pieces = 0;
  for (size_t i = 0; i < 2; i++) {
    uint8_t class = passing.classes[i];
    if (class == CT_CLASS_INTEGER) {
      place->piece[pieces] = 'i';
      place->number[pieces++] = (uint16_t)(taken->integers + integers++);
    } else if (class == CT_CLASS_SSE) {
      place->piece[pieces] = 'f';
      place->number[pieces++] = (uint16_t)(taken->vectors + vectors++);
    }
  }
  if (taken->integers + integers > CT_INTEGER_PLACES || taken->vectors + vectors > CT_VECTOR_PLACES) {
    on_stack(taken, &passing, place);
    return;
  }
  taken->integers = (uint16_t)(taken->integers + integers);
  taken->vectors = (uint16_t)(taken->vectors + vectors);
}

static void
place_result(struct taken *taken, const struct ct_passing *passing, struct ct_place *place)
{
  uint16_t integers = 0, vectors = 0;
  *place = (struct ct_place){{0}};
  if (passing->by_reference || passing->classes[0] == CT_CLASS_MEMORY) {
    taken->integers++;
    *place = (struct ct_place){{'s'}, {0}};
    return;
  }
  if (passing->classes[0] == CT_CLASS_UNKNOWN) {
    taken->is_lost = true; /* it may have taken rdi */
    place->piece[0] = '?';
    return;
  }
  if (passing->classes[0] == CT_CLASS_X87) {
    place->piece[0] = 'x';
    return;
  }
  for (size_t i = 0, pieces = 0; i < 2; i++) {
    if (passing->classes[i] == CT_CLASS_INTEGER) {
      place->piece[pieces] = 'i';
      place->number[pieces++] = integers++;
    } else if (passing->classes[i] == CT_CLASS_SSE) {
      place->piece[pieces] = 'f';
      place->number[pieces++] = vectors++;
    }
  }
}

/* The register that holds the parameter when the function begins, as the compiler says; '?': it does not. */
static struct ct_place
place_at_entry(Dwarf_Die *parameter, uint64_t address)
{
  static const uint8_t integers[] = {[5] = 1, [4] = 2, [1] = 3, [2] = 4, [8] = 5, [9] = 6}; /* DWARF's numbers */
  enum { XMM0 = 17 };
  struct ct_place place = {{'?'}, {0}};
  Dwarf_Attribute attribute;
  Dwarf_Op *ops;
  size_t count;
  if (dwarf_attr(parameter, DW_AT_location, &attribute) == NULL ||
      dwarf_getlocation_addr(&attribute, address, &ops, &count, 1) != 1 || count != 1) {
    return place;
  }
  Dwarf_Word number = UINT64_MAX;
  if (ops[0].atom == DW_OP_regx) {
    number = ops[0].number;
  } else if (ops[0].atom >= DW_OP_reg0 && ops[0].atom <= DW_OP_reg31) {
    number = ops[0].atom - DW_OP_reg0;
  }
  if (number < sizeof(integers) && integers[number] != 0) {
    place = (struct ct_place){{'i'}, {(uint16_t)(integers[number] - 1)}};
  } else if (number >= XMM0 && number < XMM0 + CT_VECTOR_PLACES) {
    place = (struct ct_place){{'f'}, {(uint16_t)(number - XMM0)}};
  }
  return place;
}

/* ---- Functions ---- */

static bool
is_clone(const char *symbol)
{
  static const char *const marks[] = {".isra.", ".constprop.", ".part."};
  for (size_t i = 0; symbol != NULL && i < sizeof(marks) / sizeof(marks[0]); i++) {
    if (strstr(symbol, marks[i]) != NULL) {
      return true;
    }
  }
  return false;
}

/* How far the language is followed: 2 all of it, 1 as long as all are numbers and addresses, 0 not at all. */
static int
trust_in(int language)
{
  switch (language) {
  case DW_LANG_C:
  case DW_LANG_C89:
  case DW_LANG_C99:
  case DW_LANG_C11:
  case DW_LANG_C_plus_plus:
  case DW_LANG_C_plus_plus_03:
  case DW_LANG_C_plus_plus_11:
  case DW_LANG_C_plus_plus_14:
  case DW_LANG_ObjC:
  case DW_LANG_ObjC_plus_plus:
    return 2;
  case DW_LANG_Rust:
  case DW_LANG_Fortran77:
  case DW_LANG_Fortran90:
  case DW_LANG_Fortran95:
  case DW_LANG_Fortran03:
  case DW_LANG_Fortran08:
    return 1;
  default:
    return 0;
  }
}

static bool
is_c(int language)
{
  return language == DW_LANG_C || language == DW_LANG_C89 || language == DW_LANG_C99 || language == DW_LANG_C11;
}

static void
take_parameter(struct reading *reading, Dwarf_Die *die, struct taken *taken, uint64_t address, bool *is_changed,
               struct ct_place *at_entry)
{
  struct ct_prototype *prototype = &reading->prototype;
  struct ct_type_reader types = {.is_c = is_c(reading->language), .budget = &reading->budget};
  struct ct_parameter *parameter = &prototype->parameters[prototype->count];
  struct ct_passing passing = {.classes = {CT_CLASS_UNKNOWN, CT_CLASS_UNKNOWN}};
  Dwarf_Die type;
  *parameter = (struct ct_parameter){.type.kind = CT_TYPE_UNKNOWN};
  const char *name = dwarf_diename(die);
  parameter->name = name != NULL ? name : "";
  if (ct_dwarf_type_of(die, &type)) {
    describe(reading, &type, &parameter->type, reading->names[prototype->count]);
    ct_dwarf_type_passing(&types, &type, &passing);
  }
  if (trust_in(reading->language) == 1 && parameter->type.kind == CT_TYPE_AGGREGATE) {
    taken->is_lost = true;
  }
  if (passing.by_reference) { /* what is passed is where the caller's copy lies */
    parameter->type.kind = CT_TYPE_POINTER;
    parameter->type.bytes = 8;
    parameter->type.pointee = ct_dwarf_is_string(&type) ? CT_POINTEE_STRING : CT_POINTEE_OTHER;
  }
  place_parameter(taken, passing, &parameter->place);
  *at_entry = place_at_entry(die, address);
  if (at_entry->piece[0] != '?' && parameter->place.piece[0] != '?' &&
      (at_entry->piece[0] != parameter->place.piece[0] || at_entry->number[0] != parameter->place.number[0])) {
    *is_changed = true;
  }
  prototype->count++;
}

static void
take_result(struct reading *reading, Dwarf_Die *die, struct taken *taken)
{
  struct ct_prototype *prototype = &reading->prototype;
  struct ct_type_reader types = {.is_c = is_c(reading->language), .budget = &reading->budget};
  Dwarf_Die type;
  bool has_type = ct_dwarf_type_of(die, &type);
  describe(reading, has_type ? &type : NULL, &prototype->result, reading->names[CT_PARAMETERS_MAX]);
  if (prototype->result.kind == CT_TYPE_VOID) {
    return;
  }
  struct ct_passing passing;
  ct_dwarf_type_passing(&types, &type, &passing);
  if (trust_in(reading->language) == 1 && prototype->result.kind == CT_TYPE_AGGREGATE) {
    passing.classes[0] = passing.classes[1] = CT_CLASS_UNKNOWN;
  }
  place_result(taken, &passing, &prototype->result_place);
}

static void
read_function(struct reading *reading, Dwarf_Die *die, const struct ct_prototype_wanted *wanted)
{
  struct ct_prototype *prototype = &reading->prototype;
  struct ct_place at_entry[CT_PARAMETERS_MAX];
  struct taken taken = {.is_lost = trust_in(reading->language) == 0};
  Dwarf_Attribute attribute;
  Dwarf_Word convention;
  Dwarf_Die child;
  memset(prototype, 0, sizeof(*prototype));
  bool is_changed = is_clone(wanted->symbol);
  if (dwarf_attr_integrate(die, DW_AT_calling_convention, &attribute) != NULL &&
      dwarf_formudata(&attribute, &convention) == 0 && convention == DW_CC_nocall) {
    is_changed = true;
  }
  take_result(reading, die, &taken);
  bool more = dwarf_child(die, &child) == 0;
  for (; more && reading->budget != 0; more = dwarf_siblingof(&child, &child) == 0) {
    int tag = dwarf_tag(&child);
    const char *name = tag == DW_TAG_formal_parameter ? dwarf_diename(&child) : NULL;
    reading->budget--;
    prototype->is_variadic |= tag == DW_TAG_unspecified_parameters;
    if (tag != DW_TAG_formal_parameter || (name != NULL && strcmp(name, "__in_chrg") == 0)) {
      continue; /* that one is not passed */
    }
    if (prototype->count == CT_PARAMETERS_MAX) {
      prototype->is_variadic = true;
      break;
    }
    take_parameter(reading, &child, &taken, wanted->address, &is_changed, &at_entry[prototype->count]);
  }
  for (uint32_t i = 0; is_changed && i < prototype->count; i++) {
    bool is_aggregate = prototype->parameters[i].type.kind == CT_TYPE_AGGREGATE;
    prototype->parameters[i].place = is_aggregate ? (struct ct_place){{'?'}, {0}} : at_entry[i];
  }
  if (is_changed && prototype->result.kind != CT_TYPE_VOID) {
    prototype->result_place = (struct ct_place){{'?'}, {0}};
  }
}

/* ICF and aliases put several functions at one address: the one that is named so counts. */
static bool
is_named(Dwarf_Die *die, const char *symbol)
{
  Dwarf_Attribute attribute;
  const char *name =
      dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute) != NULL ? dwarf_formstring(&attribute) : NULL;
  name = name != NULL ? name : dwarf_diename(die);
  if (name == NULL || symbol == NULL) {
    return false;
  }
  size_t length = strlen(name);
  return strncmp(name, symbol, length) == 0 && (symbol[length] == '\0' || strchr(".@", symbol[length]) != NULL);
}

static void
visit_function(void *context, Dwarf_Die *die)
{
  struct reading *reading = context;
  Dwarf_Addr entry;
  if ((!dwarf_hasattr(die, DW_AT_low_pc) && !dwarf_hasattr(die, DW_AT_ranges)) || dwarf_entrypc(die, &entry) != 0 ||
      entry == 0) {
    return;
  }
  for (size_t i = find(reading, entry); i < reading->count && reading->wanted[i].address == entry; i++) {
    enum state state = is_named(die, reading->wanted[i].symbol) ? FOUND_BY_NAME : FOUND;
    if (state > reading->states[i]) {
      reading->states[i] = (uint8_t)state;
      read_function(reading, die, &reading->wanted[i]);
      reading->sink->prototype(reading->sink->arg, i, &reading->prototype);
    }
  }
}

/* Some function that is wanted and was not found lies in the unit. */
static bool
has_missing(struct reading *reading, Dwarf_Die *unit)
{
  Dwarf_Addr base, start, end;
  ptrdiff_t offset = 0;
  while ((offset = dwarf_ranges(unit, offset, &base, &start, &end)) > 0 && reading->budget > 0) {
    reading->budget--;
    for (size_t i = find(reading, start); i < reading->count && reading->wanted[i].address < end; i++) {
      if (reading->states[i] != FOUND_BY_NAME) {
        return true;
      }
    }
  }
  return false;
}

static void
visit_unit(struct reading *reading, Dwarf_Die *unit)
{
  struct ct_dwarf_walk walk = {.visit = visit_function, .context = reading, .budget = &reading->budget};
  reading->language = dwarf_srclang(unit);
  memset(reading->enums, 0, sizeof(reading->enums));
  memset(reading->structures, 0, sizeof(reading->structures));
  if (reading->language == DW_LANG_Mips_Assembler) {
    return; /* entries without parameters, whatever the functions take */
  }
  if (has_missing(reading, unit)) {
    ct_dwarf_walk_functions(&walk, unit, false);
    if (has_missing(reading, unit)) {
      ct_dwarf_walk_functions(&walk, unit, true);
    }
  }
}

int
ct_prototypes_read(struct ct_elf *elf, const struct ct_prototype_wanted *wanted, size_t count,
                   const struct ct_prototype_sink *sink)
{
  struct ct_debug_info files = {{0}};
  const struct ct_image *image = ct_debug_info_open(elf, &files);
  if (image == NULL) {
    ct_debug_info_close(&files);
    return CT_ENOENT;
  }
  struct reading *reading = calloc(1, sizeof(*reading));
  uint8_t *states = calloc(count + 1, 1);
  int code = reading == NULL || states == NULL ? CT_ENOMEM : CT_OK;
  if (code == CT_OK) {
    *reading =
        (struct reading){.wanted = wanted, .count = count, .states = states, .sink = sink, .budget = image->size};
    Dwarf_CU *unit = NULL;
    Dwarf_Die die;
    while (reading->budget > 0 && ct_dwarf_next_unit(files.own.dwarf, &unit, &die)) {
      visit_unit(reading, &die);
    }
  }
  free(states);
  free(reading);
  ct_debug_info_close(&files);
  return code;
}
