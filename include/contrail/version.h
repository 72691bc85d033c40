/* SPDX-License-Identifier: MIT */
/* The version of the library: of the headers, at build time, and of what is linked, at run time. */
#ifndef CONTRAIL_VERSION_H
#define CONTRAIL_VERSION_H

#ifdef __cplusplus
extern "C" {
#endif

#define CT_VERSION "0.1.0"

/* CT_VERSION of the library that runs. Never NULL. Any thread. */
const char *ct_version(void);

#ifdef __cplusplus
}
#endif

#endif
