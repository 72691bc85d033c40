/* SPDX-License-Identifier: MIT */
/* Debug files from debuginfod servers (DEBUGINFOD_URLS). */
#ifndef CT_TARGET_DEBUGINFOD_H
#define CT_TARGET_DEBUGINFOD_H

#include <contrail/error.h>

/* 0, or CT_EINVAL, CT_EUNSUPPORTED: nothing can be fetched. */
int ct_debuginfod_check(struct ct_diag *diag);
/* Fetches the debug file of the ELF file open as fd if it has none, and a server has one. Waits for the server, 20 s at
 * most. 0, or an errno: that no server could say. */
int ct_debuginfod_fetch(int fd, const char *path);

#endif
