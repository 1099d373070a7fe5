// Package kvcsrack has the service kvcs on a rack in virtual time: hosts with 1RMA NICs behind a
// switch, a coordinator, servers, and clients as threads. Tests, scenarios and experiments use it.
// READs, REKEYs and datagrams take the same links, with the same faults.
package kvcsrack
