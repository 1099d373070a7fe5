// Package uverbs is what unmodified RDMA programs see of a NIC: the Linux interface between
// libibverbs and the kernel, in the form of the kernel's rxe driver. A small library that is
// preloaded into the program (folder shim) stands in for the kernel and forwards each command;
// package ipc/serve executes it. This package encodes and decodes the bytes between them:
//
//	hello.go    the first message of the preloaded library, and its answer
//	command.go  commands: their header, and which library function they are
//	struct.go   the arguments and answers of commands
//	ring.go     the rings of the rxe driver: indices and entries
//	entry.go    the entries of rings: work requests and completions
//
// All of it was written by another process, which is not trusted: everything decoded here was
// copied once, its lengths are checked, and indices are masked with the ring's own size. What the
// values mean is checked where they are used.
//
// The layouts are those of /usr/include/rdma: ib_user_verbs.h and rdma_user_rxe.h, 64 bits, native
// byte order.
package uverbs
