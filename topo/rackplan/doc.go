// Package rackplan computes what must change on a rack that is up, so that it becomes the rack of a
// rack file: hosts, faults, the switch's program and rules, and quotas are added, changed and
// removed. It is a pure function (Of): topo/rack carries a Plan out.
//
// Hosts that stay keep their addresses, and their place in the description. So after some changes a
// rack may have other addresses than one that `rdmalab up` makes from the same file, and a Plan
// without changes does not mean that the two descriptions are equal byte by byte.
//
// Of changes only what a rack file has declared. A fault that an operator has injected stays, unless
// it is on the link of a host that goes. Rules and the program of the switch become those of the
// file, also if an operator has changed them.
//
// The files: plan.go has Of and the plan, hosts.go the hosts with their addresses and what cannot
// change, faults.go and rules.go the rest.
package rackplan
