// Package onerma encodes and decodes the messages of the connectionless NIC of the paper 1RMA
// (SIGCOMM 2020). A message is a header of 44 bytes, an encrypted body and a tag of 16 bytes, in a
// UDP datagram over IPv4 to port 4792. The paper publishes no format. This one is the project's
// own; docs/papers/onerma.md has it as a table.
//
// An operation moves at most 4096 bytes. Its messages are, in order:
//
//	READ           initiator: request          target: data (one or more)
//	WRITE, REKEY   initiator: request          target: pull
//	               initiator: data             target: done
//
// Instead of data or pull, a target may answer NACK or AUTHFAIL, and AUTHFAIL also instead of done.
//
// The package checks the form of a message, and knows no keys: package onerma/nic encrypts,
// authenticates and executes. IPv6 is not supported, because an initialisation vector has 12 bytes,
// 4 of which are the whole address of the sender.
package onerma
