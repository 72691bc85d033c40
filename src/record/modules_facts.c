/* SPDX-License-Identifier: MIT */
/* What is known of all modules together, and which is the program; see modules.h. */
#include "record/modules.h"

#include "base/rooted.h"
#include "process/process.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool
ct_modules_have_rendezvous(const struct ct_modules *modules)
{
  for (size_t i = 0; i < modules->count; i++) {
    if (modules->items[i].loaded && modules->items[i].has_rendezvous) {
      return true;
    }
  }
  return false;
}

void
ct_modules_count(const struct ct_modules *modules, size_t *functions, size_t *hooked)
{
  *functions = *hooked = 0;
  for (size_t i = 0; i < modules->count; i++) {
    if (modules->items[i].loaded) {
      *functions += modules->items[i].functions;
      *hooked += modules->items[i].hooked;
    }
  }
}

bool
ct_modules_in_sigaction(const struct ct_modules *modules, const uint64_t *pcs, size_t count)
{
  for (size_t i = 0; i < modules->count; i++) {
    const struct ct_module *module = &modules->items[i];
    for (size_t f = 0; module->loaded && module->plan != NULL && f < module->plan->count; f++) {
      const struct ct_planned *planned = &module->plan->functions[f];
      for (size_t p = 0; planned->callout == CT_CALLOUT_SIGACTION && p < count; p++) {
        if (pcs[p] - (module->base + planned->address) < planned->size) {
          return true;
        }
      }
    }
  }
  return false;
}

const struct ct_module *
ct_modules_gs_danger(const struct ct_modules *modules)
{
  for (size_t i = 0; i < modules->count; i++) {
    const struct ct_module *module = &modules->items[i];
    if (module->loaded && module->plan != NULL && module->plan->gs_unsafe) {
      return module;
    }
  }
  return NULL;
}

static bool
is_same_file(const char *path, const struct stat *file)
{
  struct stat seen;
  int fd = ct_rooted_open(path, O_PATH | O_CLOEXEC);
  bool is = fd >= 0 && fstat(fd, &seen) == 0 && seen.st_dev == file->st_dev && seen.st_ino == file->st_ino;
  if (fd >= 0) {
    close(fd);
  }
  return is;
}

/* A name by which the debug files of the program are found, in place of exe: here, or in its root. */
static void
name_program(int pid, int fd, const char *exe, char *path, size_t size)
{
  char rest[PATH_MAX + 8] = "root";
  struct stat file;
  ssize_t length = readlink(exe, rest + 4, PATH_MAX);
  if (length > 0 && fstat(fd, &file) == 0) {
    rest[4 + length] = '\0';
    if (is_same_file(rest + 4, &file)) {
      snprintf(path, size, "%s", rest + 4);
      return;
    }
    ct_process_path(pid, rest, path, size);
    if (is_same_file(path, &file)) {
      return;
    }
  }
  snprintf(path, size, "%s", exe);
}

const struct ct_plan *
ct_modules_program(struct ct_modules *modules, int pid)
{
  char exe[64], path[PATH_MAX + 64];
  struct ct_plan *plan = NULL;
  bool fresh;
  ct_process_path(pid, "exe", exe, sizeof(exe));
  int fd = open(exe, O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    name_program(pid, fd, exe, path, sizeof(path));
  }
  if (fd < 0 || ct_plans_get(modules->plans, fd, path, false, &plan, &fresh, NULL) != 0) {
    plan = NULL;
  }
  if (fd >= 0) {
    close(fd);
  }
  return plan;
}
