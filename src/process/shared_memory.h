/* SPDX-License-Identifier: MIT */
/* Memory that a process has made (memfd_create, under the name CT_RING_NAME), mapped here, too. */
#ifndef CT_PROCESS_SHARED_MEMORY_H
#define CT_PROCESS_SHARED_MEMORY_H

#include "process/process.h"

/*
 * Maps the empty memfd that the process has as fd, here, once it has been given that size, which nobody can change
 * afterwards. An error, with the reason: it is another file, or there is no memory. Give *mapping back with munmap.
 * file: gets it opened here, to be closed; NULL: it is not wanted.
 */
int ct_process_map_memfd(const struct ct_process *process, int fd, uint64_t bytes, void **mapping, int *file,
                         struct ct_diag *diag);

#endif
