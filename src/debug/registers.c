/* SPDX-License-Identifier: MIT */
/* See registers.h. Features are gdb's (gdb/features/i386): core, sse, linux, segments, avx. */
#include "debug/registers.h"

#include "x86/emit.h"

#include <inttypes.h>
#include <string.h>

enum { CODE_SEGMENT = 0x33, STACK_SEGMENT = 0x2b };

enum kind { GENERAL, RIP, FLAGS, SEGMENT, FLOAT, CONTROL, VECTOR, MXCSR, ORIGINAL, FS_BASE, GS_BASE, UPPER };

/* Some in a row that are alike. */
struct row {
  const char *feature; /* that begins here; NULL: the same */
  const char *name;    /* with %u for which */
  const char *type;
  enum kind kind;
  uint8_t first, count, bytes;
};

static const struct row rows[] = {
    {"core", "rax", "int64", GENERAL, CT_RAX, 1, 8},  {NULL, "rbx", "int64", GENERAL, CT_RBX, 1, 8},
    {NULL, "rcx", "int64", GENERAL, CT_RCX, 1, 8},    {NULL, "rdx", "int64", GENERAL, CT_RDX, 1, 8},
    {NULL, "rsi", "int64", GENERAL, CT_RSI, 1, 8},    {NULL, "rdi", "int64", GENERAL, CT_RDI, 1, 8},
    {NULL, "rbp", "data_ptr", GENERAL, CT_RBP, 1, 8}, {NULL, "rsp", "data_ptr", GENERAL, CT_RSP, 1, 8},
    {NULL, "r%u", "int64", GENERAL, 8, 8, 8},         {NULL, "rip", "code_ptr", RIP, 0, 1, 8},
    {NULL, "eflags", "i386_eflags", FLAGS, 0, 1, 4},  {NULL, "cs", "int32", SEGMENT, 0, 1, 4},
    {NULL, "ss", "int32", SEGMENT, 1, 1, 4},          {NULL, "ds", "int32", SEGMENT, 2, 1, 4},
    {NULL, "es", "int32", SEGMENT, 3, 1, 4},          {NULL, "fs", "int32", SEGMENT, 4, 1, 4},
    {NULL, "gs", "int32", SEGMENT, 5, 1, 4},          {NULL, "st%u", "i387_ext", FLOAT, 0, 8, 10},
    {NULL, "fctrl", "int", CONTROL, 0, 1, 4},         {NULL, "fstat", "int", CONTROL, 1, 1, 4},
    {NULL, "ftag", "int", CONTROL, 2, 1, 4},          {NULL, "fiseg", "int", CONTROL, 3, 1, 4},
    {NULL, "fioff", "int", CONTROL, 4, 1, 4},         {NULL, "foseg", "int", CONTROL, 5, 1, 4},
    {NULL, "fooff", "int", CONTROL, 6, 1, 4},         {NULL, "fop", "int", CONTROL, 7, 1, 4},
    {"sse", "xmm%u", "vec128", VECTOR, 0, 16, 16},    {NULL, "mxcsr", "i386_mxcsr", MXCSR, 0, 1, 4},
    {"linux", "orig_rax", "int", ORIGINAL, 0, 1, 8},  {"segments", "fs_base", "int", FS_BASE, 0, 1, 8},
    {NULL, "gs_base", "int", GS_BASE, 0, 1, 8},       {"avx", "ymm%uh", "uint128", UPPER, 0, 16, 16},
};

static const char core_types[] =
    "<flags id=\"i386_eflags\" size=\"4\"><field name=\"\" start=\"22\" end=\"31\"/>"
    "<field name=\"CF\" start=\"0\" end=\"0\"/><field name=\"PF\" start=\"2\" end=\"2\"/>"
    "<field name=\"AF\" start=\"4\" end=\"4\"/><field name=\"ZF\" start=\"6\" end=\"6\"/>"
    "<field name=\"SF\" start=\"7\" end=\"7\"/><field name=\"TF\" start=\"8\" end=\"8\"/>"
    "<field name=\"IF\" start=\"9\" end=\"9\"/><field name=\"DF\" start=\"10\" end=\"10\"/>"
    "<field name=\"OF\" start=\"11\" end=\"11\"/></flags>";
static const char sse_types[] =
    "<vector id=\"v4f\" type=\"ieee_single\" count=\"4\"/><vector id=\"v2d\" type=\"ieee_double\" count=\"2\"/>"
    "<vector id=\"v16i8\" type=\"int8\" count=\"16\"/><vector id=\"v8i16\" type=\"int16\" count=\"8\"/>"
    "<vector id=\"v4i32\" type=\"int32\" count=\"4\"/><vector id=\"v2i64\" type=\"int64\" count=\"2\"/>"
    "<union id=\"vec128\"><field name=\"v4_float\" type=\"v4f\"/><field name=\"v2_double\" type=\"v2d\"/>"
    "<field name=\"v16_int8\" type=\"v16i8\"/><field name=\"v8_int16\" type=\"v8i16\"/>"
    "<field name=\"v4_int32\" type=\"v4i32\"/><field name=\"v2_int64\" type=\"v2i64\"/>"
    "<field name=\"uint128\" type=\"uint128\"/></union>"
    "<flags id=\"i386_mxcsr\" size=\"4\"><field name=\"IE\" start=\"0\" end=\"0\"/></flags>";

void
ct_registers_describe(FILE *out)
{
  char name[16];
  fputs("<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\"><target>"
        "<architecture>i386:x86-64</architecture><osabi>GNU/Linux</osabi>",
        out);
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
    const struct row *row = &rows[i];
    if (row->feature != NULL) {
      fprintf(out, "%s<feature name=\"org.gnu.gdb.i386.%s\">%s", i != 0 ? "</feature>" : "", row->feature,
              row->kind == GENERAL  ? core_types
              : row->kind == VECTOR ? sse_types
                                    : "");
    }
    for (unsigned k = 0; k < row->count; k++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
      snprintf(name, sizeof(name), row->name, row->first + k);
#pragma GCC diagnostic pop
      fprintf(out, "<reg name=\"%s\" bitsize=\"%u\" type=\"%s\"%s/>", name, 8u * row->bytes, row->type,
              row->kind == CONTROL ? " group=\"float\"" : "");
    }
  }
  fputs("</feature></target>", out);
}

static void
put_bytes(const uint8_t *bytes, unsigned known, unsigned size, FILE *out)
{
  for (unsigned i = 0; i < size; i++) {
    if (i < known) {
      fprintf(out, "%02x", bytes[i]);
    } else {
      fputs("xx", out);
    }
  }
}

static void
put_number(uint64_t value, bool known, unsigned size, FILE *out)
{
  put_bytes((const uint8_t *)&value, known ? size : 0, size, out);
}

static void
put_one(const struct ct_steps_state *state, const struct row *row, unsigned which, FILE *out)
{
  static const uint16_t segments[6] = {CODE_SEGMENT, STACK_SEGMENT}; /* of a 64-bit program under Linux */
  unsigned known;
  switch (row->kind) {
  case GENERAL:
    put_number(state->cpu.reg[which & 15], (state->unknown >> which & 1) == 0, 8, out);
    break;
  case RIP:
    put_number(state->cpu.rip, !state->rip_unknown, 8, out);
    break;
  case FLAGS: /* what an instruction left undefined is as it was */
    put_number(state->cpu.flags, true, 4, out);
    break;
  case SEGMENT:
    put_number(segments[which], true, 4, out);
    break;
  case FS_BASE:
  case GS_BASE:
    put_number(row->kind == FS_BASE ? state->cpu.fs_base : state->cpu.gs_base, true, 8, out);
    break;
  case ORIGINAL: /* in no system call */
    put_number(UINT64_MAX, true, 8, out);
    break;
  case VECTOR:
    put_bytes(state->vector[which], state->vectors_known[which], 16, out);
    break;
  case UPPER:
    known = state->vectors_known[which];
    put_bytes(state->vector[which] + 16, known > 16 ? known - 16 : 0, 16, out);
    break;
  default:
    put_bytes(NULL, 0, row->bytes, out);
    break;
  }
}

void
ct_registers_put(const struct ct_steps_state *state, FILE *out)
{
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
    for (unsigned k = 0; k < rows[i].count; k++) {
      put_one(state, &rows[i], rows[i].first + k, out);
    }
  }
}

bool
ct_register_put(const struct ct_steps_state *state, unsigned number, FILE *out)
{
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
    if (number < rows[i].count) {
      put_one(state, &rows[i], rows[i].first + number, out);
      return true;
    }
    number -= rows[i].count;
  }
  return false;
}
