/* SPDX-License-Identifier: MIT */
/* Why events are lost, in words. */
#include <contrail/trace.h>

static const struct {
  const char *name, *text;
} drops[CT_DROP_COUNT] = {
    [CT_DROP_OVERWRITTEN] = {"overwritten", "the program was faster than contrail"},
    [CT_DROP_NO_SEGMENT] = {"no_segment", "the ring had no room"},
    [CT_DROP_NO_STACK] =
        {"no_stack",
         "the stack of their thread could not be found: no /proc where the program is, no descriptor left, or no "
         "memory for contrail in it"},
    [CT_DROP_INTERRUPTED] = {"interrupted", "their hooks were interrupted for too long"},
    [CT_DROP_NO_SLOT] = {"no_slot", "more threads at a time than contrail records"},
    [CT_DROP_NO_THREAD] = {"no_thread", "more threads than a trace has room for"},
    [CT_DROP_DISK_SLOW] = {"disk_slow", "the disk was slower than the events came"},
    [CT_DROP_LATE] = {"drain_late", "contrail did not run then: it was stopped, or had no processor"},
    [CT_DROP_MEMORY] = {"memory_limit", "no memory for contrail to record their thread"},
};

const char *
ct_drop_name(enum ct_drop reason)
{
  return (unsigned)reason < CT_DROP_COUNT ? drops[reason].name : "?";
}

const char *
ct_drop_text(enum ct_drop reason)
{
  return (unsigned)reason < CT_DROP_COUNT ? drops[reason].text : "?";
}
