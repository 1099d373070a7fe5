// Package ucma implements the Linux interface between librdmacm and the kernel
// (/dev/infiniband/rdma_cm), by which unmodified RDMA programs use a NIC's connection manager. The
// preloaded library of package uverbs forwards the commands of a program, and package ipc/serve
// executes them by a Manager:
//
//	abi.go      commands: numbers, arguments, answers, events
//	message.go  how the preloaded library forwards a command
//	address.go  socket addresses; addresses of identifiers; what a query says
//	resolve.go  how an identifier finds its peer: addresses and routes
//	ports.go    which identifiers may have the same port
//	state.go    the states of an identifier
//	id.go       identifiers: rdma_cm_id of librdmacm
//	channel.go  event channels: events that a program has not read
//	manager.go  Manager: the identifiers and channels of one program
//	listen.go   listeners and peers' requests
//	connect.go  connections and datagram services
//	nics.go     hosts with several NICs: identifiers move to a NIC, listeners have mirrors
//	multicast.go  memberships in multicast groups
//	report.go   events that the NIC's connection manager reports
//	attr.go     attributes with which a program brings its queue pair up
//	option.go   options of identifiers
//	listing.go  copies of identifiers, for listings
//
// Commands never wait: operations that take time end with an event. The bytes of a command are
// written by another process, which is not trusted. The layouts are those of
// /usr/include/rdma/rdma_user_cm.h.
//
// A Manager has no lock: its caller has exclusive use of the NIC's engine, also when the engine
// reports a change.
package ucma
