/* SPDX-License-Identifier: MIT */
/* contrail steps: the instructions that a thread has executed. */
#include "cli/command.h"
#include "cli/shown.h"

#include <contrail/control.h>
#include <contrail/steps.h>

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define RING_BYTES (16u << 20)
enum { CALL_MS = 10000 };

struct wanted {
  struct ct_steps_options steps;
  const char *stream, *ring;
  uint64_t ring_size;
  struct ct_look look;
};

static int
apply_step(const struct ct_applied *applied)
{
  struct ct_steps_options *options = &((struct wanted *)applied->member)->steps;
  options->has_step = true;
  return ct_parse_number(applied->value, UINT64_MAX, &options->step)
             ? CT_EXIT_OK
             : ct_usage_error(applied->command, "--step takes a number, not '%s'", applied->value);
}

static int
apply_address(const struct ct_applied *applied)
{
  struct ct_steps_options *options = &((struct wanted *)applied->member)->steps;
  char *end;
  errno = 0;
  options->has_address = true;
  options->address = strtoull(applied->value, &end, 16);
  return errno == 0 && end != applied->value && *end == 0
             ? CT_EXIT_OK
             : ct_usage_error(applied->command, "--address takes a hexadecimal address, not '%s'", applied->value);
}

#define MEMBER(name) .offset = offsetof(struct wanted, steps.name)

static const struct ct_option options[] = {
    {.name = "step",
     .argument = "N",
     .help = "show from step N on; with --last-write, before step N",
     .apply = apply_step},
    {.name = "limit",
     .letter = 'n',
     .argument = "N",
     .help = "show at most N steps, 0 for all (default; 20 with --tail)",
     .most = UINT64_MAX,
     .unit = " of steps",
     .apply = ct_apply_count64,
     MEMBER(limit)},
    {.name = "tail", .against = "step back", .help = "show the last steps", .apply = ct_apply_flag, MEMBER(tail)},
    {.name = "back", .help = "show steps backwards, from the step or the end", .apply = ct_apply_flag, MEMBER(back)},
    {.name = "function",
     .letter = 'F',
     .argument = "PATTERN",
     .help = "show only steps in functions that match, as in record --trace",
     .values = CT_COMPLETE_PATTERN,
     .apply = ct_apply_text,
     MEMBER(function)},
    {.name = "address",
     .argument = "ADDRESS",
     .help = "show only steps at ADDRESS (hexadecimal)",
     .apply = apply_address},
    {.name = "last-write",
     .argument = "REGISTER|ADDRESS[:SIZE]",
     .help = "show the step that last wrote a register (rax, rflags, xmm3), or any of SIZE (8) bytes at "
             "ADDRESS (0x7ffe1200:4)",
     .against = "function address tail back limit",
     .apply = ct_apply_text,
     MEMBER(last_write)},
    {.name = "memory",
     .argument = "ADDRESS[:SIZE]",
     .help = "show SIZE (8) bytes at ADDRESS before the step, or at the end, as far as the trace knows them",
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
    {.name = "registers", .help = "show all registers before each step", .apply = ct_apply_flag, MEMBER(registers)},
    {.name = "source",
     .help = "show lines of the source, by the programs' files as they are now",
     .apply = ct_apply_flag,
     MEMBER(source)},
    {.name = "intel", .help = "use Intel's syntax instead of AT&T's", .apply = ct_apply_flag, MEMBER(intel)},
    {.name = "live",
     .against = "back last-write memory",
     .help = "also show what is recorded meanwhile, until the recording ends, or Ctrl-C. With --tail only that",
     .apply = ct_apply_flag,
     MEMBER(live)},
    {.name = "stream",
     .argument = "FILE",
     .against = "ring step limit tail back function address last-write memory registers source intel json",
     .help = "write the stream of blocks and register writes of one thread to a new file, or with - to "
             "standard output",
     .values = CT_COMPLETE_FILE,
     .apply = ct_apply_text,
     .offset = offsetof(struct wanted, stream)},
    {.name = "ring",
     .argument = "FILE",
     .against = "step limit tail back function address last-write memory registers source intel json",
     .help = "write the stream of --stream to a ring in a new file, which another program maps and reads",
     .values = CT_COMPLETE_FILE,
     .apply = ct_apply_text,
     .offset = offsetof(struct wanted, ring)},
    {.name = "ring-size",
     .argument = "K",
     .help = "KiB of the ring of --ring, 4 and more (default 16384)",
     .least = CT_STEPS_RING_MIN / 1024,
     .most = 1 << 30,
     .unit = " (KiB)",
     .apply = ct_apply_count64,
     .offset = offsetof(struct wanted, ring_size)},
    {.name = "index",
     .against = "ring stream live step limit tail back function address last-write memory registers source intel json",
     .help = "show nothing, but make the index that --last-write ADDRESS uses, as itrace --index does",
     .apply = ct_apply_flag,
     MEMBER(index)},
    {.name = "json",
     .letter = 'j',
     .help = "print one JSON object for each step; the status is 1 when nothing matches",
     .apply = ct_apply_flag,
     MEMBER(json)},
    CT_OPTION_GROUP(ct_look_options, struct wanted, look),
    CT_OPTIONS_END,
};

static volatile sig_atomic_t is_interrupted;

static void
interrupt(int signal)
{
  (void)signal;
  is_interrupted = 1;
}

static bool
goes_on(void *context)
{
  (void)context;
  return is_interrupted == 0;
}

/* The first signal ends what is shown, with all that belongs to it, the second one us. */
static void
take_signals(void)
{
  struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
}

/* Of a session's name the directory of its trace; to be freed, NULL: it is none. */
static char *
trace_of(const char *name)
{
  char id[CT_CONTROL_ID_BYTES], *result = NULL, *directory = NULL;
  struct ct_diag diag = {""};
  struct stat status;
  if (stat(name, &status) == 0 || ct_control_find(name, id, &diag) != CT_OK ||
      ct_control_call(id, "status", NULL, CALL_MS, &result, &diag) != CT_OK) {
    return NULL;
  }
  json_t *json = json_loads(result, 0, NULL);
  const char *trace = json_string_value(json_object_get(json, "trace"));
  directory = trace != NULL ? strdup(trace) : NULL;
  json_decref(json);
  free(result);
  return directory;
}

/* Where it goes; NULL: it cannot. */
static FILE *
open_output(const struct wanted *wanted, struct ct_diag *diag)
{
  FILE *out = stdout;
  if (wanted->ring != NULL) {
    uint64_t size = wanted->ring_size != 0 ? wanted->ring_size << 10 : RING_BYTES;
    return ct_steps_ring_open(wanted->ring, size, goes_on, NULL, &out, diag) == CT_OK ? out : NULL;
  }
  if (wanted->stream != NULL && strcmp(wanted->stream, "-") != 0) {
    out = fopen(wanted->stream, "wxe");
    if (out == NULL) {
      snprintf(diag->text, sizeof(diag->text), "cannot create %s: %s", wanted->stream, strerror(errno));
    }
  }
  return out;
}

/* What there is to say besides; the status. */
static int
report(const struct ct_steps_options *selected, const struct ct_steps_notes *notes)
{
  if (notes->damage[0] != 0) {
    ct_command_failed(&ct_command_steps, "DAMAGED: %s", notes->damage);
  }
  if (notes->merged != 0) {
    ct_command_failed(&ct_command_steps,
                      "%" PRIu64 " threads, merged by time stamps: only at these (system calls, signals, gaps, and "
                      "after some KiB of records) is their order known",
                      notes->merged);
  }
  if (notes->inconsistent != 0) {
    ct_command_failed(&ct_command_steps, "the records contradict each other at %" PRIu64 " places",
                      notes->inconsistent);
  }
  if (notes->shown == 0 && !notes->stopped && notes->waited != 0) {
    ct_command_failed(&ct_command_steps, "no steps: %s executed no instruction while recorded, but waited all the time",
                      notes->waited == 1 ? "the thread" : "the threads");
    return CT_EXIT_FAILED;
  }
  if (notes->shown == 0 && !notes->stopped) {
    ct_command_failed(&ct_command_steps, selected->last_write != NULL ? "nothing in the trace wrote that"
                                         : selected->memory != NULL   ? "nothing in the trace shows that memory"
                                                                      : "no such step");
    return CT_EXIT_FAILED;
  }
  return CT_EXIT_OK;
}

static int
show(const char *path, struct wanted *wanted)
{
  struct ct_steps_notes notes = {.struct_size = sizeof(notes)};
  struct ct_diag diag = {""};
  FILE *out = open_output(wanted, &diag);
  if (out == NULL) {
    return ct_command_failed(&ct_command_steps, "%s", diag.text);
  }
  bool is_text = out == stdout && !wanted->steps.json && !wanted->steps.stream && !wanted->steps.live;
  FILE *shown = is_text ? ct_shown_open_as(CT_SHOWN_STEPS, &wanted->look, true) : out;
  if (shown == NULL) {
    return ct_command_failed(&ct_command_steps, "out of memory");
  }
  int code = ct_steps_write(path, &wanted->steps, shown, &notes, &diag), saved = errno;
  bool was_shown = shown != out;
  ct_shown_close(was_shown ? shown : NULL);
  if (out != stdout && fclose(out) != 0 && code == CT_OK) {
    code = CT_EIO;
    snprintf(diag.text, sizeof(diag.text), "cannot write: %s", strerror(errno));
  }
  if (code == CT_EIO && saved == EPIPE) { /* the pager has been left, or a pipe */
    return was_shown ? CT_EXIT_OK : CT_EXIT_FAILED;
  }
  if (code != CT_OK) {
    return ct_command_failed(&ct_command_steps, "%s", diag.text);
  }
  return wanted->steps.index && notes.damage[0] == 0 ? CT_EXIT_OK : report(&wanted->steps, &notes);
}

static int
run(int argc, char **argv)
{
  struct wanted wanted = {.steps = {.struct_size = sizeof(wanted.steps)}};
  int code = ct_parse(&ct_command_steps, argc, argv, &wanted);
  if (code != -1) {
    return code;
  }
  const char *path = ct_trace_argument(&ct_command_steps, argc, argv);
  if (path == NULL) {
    return CT_EXIT_USAGE;
  }
  if (wanted.ring_size != 0 && wanted.ring == NULL) {
    return ct_usage_error(&ct_command_steps, "--ring-size goes with --ring");
  }
  wanted.steps.stream = wanted.stream != NULL || wanted.ring != NULL;
  wanted.steps.goes_on = goes_on;
  signal(SIGPIPE, SIG_IGN);
  if (wanted.steps.live || wanted.ring != NULL) {
    take_signals();
  }
  char *of_session = wanted.steps.live ? trace_of(path) : NULL;
  code = show(of_session != NULL ? of_session : path, &wanted);
  free(of_session);
  return code;
}

const struct ct_command ct_command_steps = {
    .name = "steps",
    .summary = "the instructions that a thread executed, with registers and memory",
    .synopsis = "[OPTION]... [DIR]",
    .about = "Shows the instructions recorded in DIR (default " CT_DEFAULT_TRACE "), or in a file of it, one a\n"
             "line: number, function, instruction, what it loaded (ADDRESS:SIZE)=VALUE and stored\n"
             "[ADDRESS:SIZE]:=VALUE, the registers and {flags} that it wrote. ? is what is not known.\n"
             "With --live DIR may be that of a recording that goes on, or a session's name.\n",
    .options = options,
    .operands = CT_COMPLETE_TRACE,
    .run = run,
};
