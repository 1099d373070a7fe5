// <infiniband/verbs.h> as MLNX_OFED 4 has it: that of the system, and the experimental calls.
#ifndef RDMALAB_VERBS_H
#define RDMALAB_VERBS_H
#pragma GCC system_header
#include_next <infiniband/verbs.h>

#include "verbs_exp.h"
#endif
