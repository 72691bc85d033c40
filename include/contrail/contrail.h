/* SPDX-License-Identifier: MIT */
/*
 * All of libcontrail. Each noun has a header of its own; error.h says how functions fail, and the structures that begin
 * with struct_size are to have it set to their sizeof before they are handed over.
 */
#ifndef CONTRAIL_H
#define CONTRAIL_H

#include <contrail/cache.h>
#include <contrail/check.h>
#include <contrail/control.h>
#include <contrail/cost.h>
#include <contrail/debug.h>
#include <contrail/diff.h>
#include <contrail/error.h>
#include <contrail/export.h>
#include <contrail/exclude.h>
#include <contrail/filter.h>
#include <contrail/hot_functions.h>
#include <contrail/graph.h>
#include <contrail/info.h>
#include <contrail/itrace.h>
#include <contrail/live.h>
#include <contrail/output.h>
#include <contrail/plan.h>
#include <contrail/recover.h>
#include <contrail/replay.h>
#include <contrail/report.h>
#include <contrail/rule.h>
#include <contrail/select.h>
#include <contrail/session.h>
#include <contrail/slowest.h>
#include <contrail/span.h>
#include <contrail/sql.h>
#include <contrail/steps.h>
#include <contrail/stream.h>
#include <contrail/text.h>
#include <contrail/trace.h>
#include <contrail/version.h>
#include <contrail/view.h>

#endif
