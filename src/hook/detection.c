/* SPDX-License-Identifier: MIT */
/* Looking for an image of ours in a process; see undo.h. */
#include "hook/undo.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RING_FILE "/memfd:" CT_RING_NAME " "

/* The memfd is open in the process only while it is being mapped. */
static bool
find_descriptor(pid_t pid, int *descriptor)
{
  char path[PATH_MAX], target[sizeof(RING_FILE)];
  bool found = false;
  ct_process_path(pid, "fd", path, sizeof(path));
  size_t length = strlen(path);
  DIR *folder = opendir(path);
  const struct dirent *entry;
  while (folder != NULL && !found && (entry = readdir(folder)) != NULL) {
    snprintf(path + length, sizeof(path) - length, "/%s", entry->d_name);
    found = readlink(path, target, sizeof(target)) == (ssize_t)sizeof(target) &&
            memcmp(target, RING_FILE, sizeof(RING_FILE) - 1) == 0;
    *descriptor = found ? atoi(entry->d_name) : 0;
  }
  if (folder != NULL) {
    closedir(folder);
  }
  return found;
}

int
ct_detect(const struct ct_process *process, struct ct_detection *found, struct ct_diag *diag)
{
  struct ct_mappings mappings;
  memset(found, 0, sizeof(*found));
  int code = ct_process_mappings(process->pid, &mappings);
  if (code != 0) {
    return ct_fail(diag, code, "cannot read the mappings of process %d: %s", (int)process->pid, ct_err_text(code));
  }
  struct ct_ring_header *header = malloc(sizeof(*header));
  code = header == NULL ? CT_ENOMEM : CT_ENOENT;
  for (size_t i = 0; i < mappings.count && code == CT_ENOENT; i++) {
    const struct ct_mapping *mapping = &mappings.items[i];
    if (strncmp(mapping->path, "/memfd:" CT_RING_NAME " ", sizeof("/memfd:" CT_RING_NAME)) != 0 ||
        ct_process_read(process, mapping->start, header, sizeof(*header)) != 0 || header->magic != CT_RING_MAGIC) {
      continue;
    }
    *found =
        (struct ct_detection){.ring = mapping->start, .ring_bytes = mapping->end - mapping->start, .header = header};
    code = header->version == CT_RING_VERSION
               ? 0
               : ct_fail(diag, CT_EUNSUPPORTED, "process %d holds hooks of another version of contrail",
                         (int)process->pid);
  }
  ct_mappings_free(&mappings);
  if (code == CT_ENOENT && find_descriptor(process->pid, &found->descriptor)) {
    memset(header, 0, sizeof(*header));
    found->header = header;
    return 0;
  }
  if (code != 0) {
    free(header);
    memset(found, 0, sizeof(*found));
  }
  return code;
}

void
ct_detection_free(struct ct_detection *found)
{
  free(found->header);
  memset(found, 0, sizeof(*found));
}

static bool
has_controller(const struct ct_detection *found)
{
  pid_t pid = (pid_t)found->header->controller_pid;
  uint64_t start = ct_process_start_time(pid);
  return pid != getpid() && start != 0 && start == found->header->inside.controller_start &&
         ct_process_state(pid) != 'Z';
}

bool
ct_detection_is_in_use(const struct ct_detection *found)
{
  bool is = has_controller(found);
  for (int ms = 0; is && ct_process_is_going((pid_t)found->header->controller_pid, ms); ms++) {
    is = has_controller(found);
  }
  return is;
}
