// Package uverbs has the interface between libibverbs and the Linux kernel, in the form of the
// kernel's rxe driver. By this interface unmodified RDMA programs use a NIC. A small library that
// is preloaded into the program (folder shim) takes the kernel's place and forwards each command to
// the daemon, where package ipc/serve executes it. This package encodes and decodes the messages
// between library and daemon:
//
//	hello.go    the first message of the preloaded library, and its answer
//	command.go  commands: their numbers and headers
//	struct.go   the arguments and answers of commands
//	ring.go     the rings of the rxe driver: indices and entries
//	entry.go    the entries of rings: work requests and completions
//	tree.go     the files under /sys in which libibverbs finds the NIC
//
// The messages and rings are written by another process, which is not trusted. So the bytes are
// copied once before they are decoded, their lengths are checked, and indices are masked with the
// daemon's own copy of the ring's size. The code that uses the values checks what they mean.
//
// The layouts of commands and rings are those of ib_user_verbs.h and rdma_user_rxe.h in
// /usr/include/rdma, on a 64-bit machine and in its byte order.
package uverbs
