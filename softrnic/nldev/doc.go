// Package nldev answers the requests that RDMA tools send to the kernel by netlink (NETLINK_RDMA,
// client RDMA_NL_NLDEV): `rdma dev`, `rdma link`, `rdma resource` and `rdma statistic` of iproute2, and
// libibverbs and librdmacm, which look for devices. The tools get the answers of a description of the
// devices (Source); the package itself knows no device.
//
//	abi.go      numbers of commands and attributes, as in /usr/include/rdma/rdma_netlink.h
//	attr.go     attributes: parsed, and put into a message
//	message.go  headers of messages; errors
//	source.go   the description of the devices
//	answer.go   Answer: the requests of a datagram, one after the other
//	device.go   devices, ports, character devices, the system
//	resource.go queue pairs, completion queues and other objects
//	stat.go     counters
//
// Requests come from programs, which are not trusted: no bytes make the package panic, and the number of
// requests of a datagram has a bound. Requests that would change something are refused with EOPNOTSUPP:
// devices are made and named by the rack. The package does no input or output.
package nldev
