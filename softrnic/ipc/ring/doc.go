// Package ring has the layout of the memory that an application and the daemon of its NIC share.
// This memory is a control page for each application, and a file with rings for each completion
// queue, queue pair and shared receive queue. The entries of a ring have a fixed size.
//
// The daemon makes this memory as a sealed memfd, so that an application can neither shrink nor
// grow it. Each word has one writer unless its comment says otherwise. Words are read and written
// atomically; the daemon copies an entry once, to its own memory, and uses only the copy. So
// whatever an application writes and whenever, the daemon sees one value and checks that value.
//
// A ring has positions that only grow. The producer writes entries and then publishes its tail; the
// consumer takes them and then publishes its head. The daemon checks the positions that an
// application publishes against the length of the ring.
//
// Nothing here waits, and only making and mapping memory needs system calls.
package ring
