/* SPDX-License-Identifier: MIT */
/* contrail clean: take out of a process what a recording left there that was killed. */
#include "cli/recording.h"

#include <contrail/session.h>
#include <contrail/text.h>

#include <getopt.h>
#include <stdio.h>

static int
run_clean(int argc, char **argv)
{
  pid_t pid = 0;
  int code = ct_parse(&ct_command_clean, argc, argv, NULL);
  if (code != -1) {
    return code;
  }
  if (argc - optind != 1) {
    return ct_usage_error(&ct_command_clean, optind >= argc ? "which process?" : "one process at a time");
  }
  code = ct_parse_pid(&ct_command_clean, argv[optind], &pid);
  if (code != CT_EXIT_OK) {
    return code;
  }
  char patches[CT_COUNT_CHARS], frames[CT_COUNT_CHARS];
  struct ct_clean_report report = {.struct_size = sizeof(report)};
  struct ct_diag diag = {""};
  code = ct_clean(pid, &report, &diag);
  if (code == CT_ENOENT) {
    fprintf(stderr, "contrail: %s\n", diag.text);
    return CT_EXIT_OK;
  }
  if (code != 0) {
    fprintf(stderr, "contrail: %s\n", diag.text);
    return CT_EXIT_RECORDING;
  }
  if (report.itrace_bytes != 0) {
    char bytes[CT_DURATION_CHARS];
    fprintf(stderr, "contrail: %s of address space of a recorder of instructions that was killed taken out of it\n",
            ct_format_bytes(bytes, report.itrace_bytes));
  }
  if (report.itrace_kept) {
    fprintf(stderr, "contrail: note: a thread is still in the code of a recorder of instructions that was killed: that "
                    "is still there; clean again later\n");
    if (report.patches == 0 && report.frames == 0) {
      return CT_EXIT_OK;
    }
  }
  fprintf(stderr, "contrail: process %d is clean: %s patches and %s return addresses put back, stopped for %.1f ms\n",
          (int)pid, ct_format_count(patches, report.patches), ct_format_count(frames, report.frames),
          (double)report.pause_ns / 1e6);
  if (report.is_filtered) {
    fprintf(stderr, "contrail: note: its seccomp filter may forbid to unmap what the hooks used: that is still there, "
                    "out of use; clean as root takes it out\n");
  } else if (report.kept) {
    fprintf(stderr,
            "contrail: note: a thread has not left a hook yet (a signal handler runs above it, or others have the "
            "processors): what it goes back to is still there; clean again later\n");
  }
  return CT_EXIT_OK;
}

const struct ct_command ct_command_clean = {
    .name = "clean",
    .summary = "take out of a process what a killed recording left there",
    .synopsis = "PID",
    .about = "When contrail is killed, the process that it recorded runs on with hooks whose events nobody\n"
             "reads. This command takes the hooks out, and the memory of a killed recorder of instructions.\n"
             "(contrail attach does so too before it begins.)\n",
    .operands = CT_COMPLETE_PROCESS,
    .run = run_clean,
};
