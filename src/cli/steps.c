/* SPDX-License-Identifier: MIT */
/* contrail steps: the instructions that a thread has executed. */
#include "cli/command.h"

#include <contrail/steps.h>

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>

static int
apply_step(const struct ct_applied *applied)
{
  struct ct_steps_options *options = applied->member;
  options->has_step = true;
  return ct_parse_number(applied->value, UINT64_MAX, &options->step)
             ? CT_EXIT_OK
             : ct_usage_error(applied->command, "--step takes a number, not '%s'", applied->value);
}

static int
apply_address(const struct ct_applied *applied)
{
  struct ct_steps_options *options = applied->member;
  char *end;
  errno = 0;
  options->has_address = true;
  options->address = strtoull(applied->value, &end, 16);
  return errno == 0 && end != applied->value && *end == 0
             ? CT_EXIT_OK
             : ct_usage_error(applied->command, "--address takes a hexadecimal address, not '%s'", applied->value);
}

#define MEMBER(name) .offset = offsetof(struct ct_steps_options, name)

static const struct ct_option options[] = {
    {.name = "step", .argument = "N", .help = "from step N on; with --last-write, before step N", .apply = apply_step},
    {.name = "limit",
     .letter = 'n',
     .argument = "N",
     .help = "at most N of them, 0 for all (default; 20 with --tail)",
     .most = UINT64_MAX,
     .unit = " of steps",
     .apply = ct_apply_count64,
     MEMBER(limit)},
    {.name = "tail", .against = "step back", .help = "the last ones", .apply = ct_apply_flag, MEMBER(tail)},
    {.name = "back", .help = "from the step, or the end, towards the beginning", .apply = ct_apply_flag, MEMBER(back)},
    {.name = "function",
     .letter = 'F',
     .argument = "PATTERN",
     .help = "only in functions whose name matches",
     .values = CT_COMPLETE_PATTERN,
     .apply = ct_apply_text,
     MEMBER(function)},
    {.name = "address",
     .argument = "ADDRESS",
     .help = "only steps at that address (hexadecimal)",
     .apply = apply_address},
    {.name = "last-write",
     .argument = "REGISTER|ADDRESS[:SIZE]",
     .help = "the step that last wrote the register (rax, rflags, xmm3), or any of SIZE (8) bytes at ADDRESS "
             "(0x7ffe1200:4)",
     .against = "function address tail back limit",
     .apply = ct_apply_text,
     MEMBER(last_write)},
    {.name = "memory",
     .argument = "ADDRESS[:SIZE]",
     .help = "SIZE (8) bytes at ADDRESS before the step, or at the end, as far as the trace shows them",
     .against = "function address tail back limit last-write",
     .apply = ct_apply_text,
     MEMBER(memory)},
    {.name = "thread",
     .letter = 't',
     .argument = "TID",
     .help = "only this thread",
     .values = CT_COMPLETE_THREAD,
     .least = 1,
     .most = UINT32_MAX,
     .unit = " of a thread",
     .apply = ct_apply_count32,
     MEMBER(tid)},
    {.name = "registers", .help = "all registers before each step", .apply = ct_apply_flag, MEMBER(registers)},
    {.name = "source",
     .help = "lines of the source, by the programs' files as they are now",
     .apply = ct_apply_flag,
     MEMBER(source)},
    {.name = "intel", .help = "Intel's syntax in place of AT&T's", .apply = ct_apply_flag, MEMBER(intel)},
    {.name = "json",
     .letter = 'j',
     .help = "one JSON object for each step; status 1 when nothing matches",
     .apply = ct_apply_flag,
     MEMBER(json)},
    CT_OPTIONS_END,
};

static int
run(int argc, char **argv)
{
  struct ct_steps_options chosen = {.struct_size = sizeof(chosen)};
  struct ct_steps_notes notes = {.struct_size = sizeof(notes)};
  struct ct_diag diag = {""};
  int code = ct_parse(&ct_command_steps, argc, argv, &chosen);
  if (code != -1) {
    return code;
  }
  const char *path = ct_trace_argument(&ct_command_steps, argc, argv);
  if (path == NULL) {
    return CT_EXIT_USAGE;
  }
  signal(SIGPIPE, SIG_IGN);
  code = ct_steps_write(path, &chosen, stdout, &notes, &diag);
  if (code == CT_EIO && errno == EPIPE) {
    return CT_EXIT_FAILED;
  }
  if (code != CT_OK) {
    return ct_command_failed(&ct_command_steps, "%s", diag.text);
  }
  if (notes.damage[0] != 0) {
    ct_command_failed(&ct_command_steps, "DAMAGED: %s", notes.damage);
  }
  if (notes.merged != 0) {
    ct_command_failed(&ct_command_steps,
                      "%" PRIu64 " threads, merged by time stamps: only at these (system calls, signals, gaps, and "
                      "after some KiB of records) is their order known",
                      notes.merged);
  }
  if (notes.inconsistent != 0) {
    ct_command_failed(&ct_command_steps, "the records contradict each other at %" PRIu64 " places", notes.inconsistent);
  }
  if (notes.shown == 0) {
    ct_command_failed(&ct_command_steps, chosen.last_write != NULL ? "nothing in the trace wrote that"
                                         : chosen.memory != NULL   ? "nothing in the trace shows that memory"
                                                                   : "no such step");
    return CT_EXIT_FAILED;
  }
  return CT_EXIT_OK;
}

const struct ct_command ct_command_steps = {
    .name = "steps",
    .summary = "the instructions that a thread executed, with registers and memory",
    .synopsis = "[OPTION]... [DIR]",
    .about = "Shows the instructions recorded in DIR (default " CT_DEFAULT_TRACE "), or in a file of it, one a\n"
             "line: number, function, instruction, what it loaded (ADDRESS:SIZE)=VALUE and stored\n"
             "[ADDRESS:SIZE]:=VALUE, the registers and {flags} that it wrote. ? is what is not known.\n",
    .options = options,
    .operands = CT_COMPLETE_TRACE,
    .run = run,
};
