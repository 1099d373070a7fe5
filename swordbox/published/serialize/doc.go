// Package serialize serialises requests as the SwordBox paper describes it (NSDI 2024 submission,
// sections 4 and 5). Requests of many clients move to the connection of one of them. The switch
// renumbers all packets. It knows the outcome of a CMP_SWAP or FETCH_ADD beforehand, and sends a
// WRITE of this outcome instead. It splits the server's coalesced acknowledgements.
//
// The package exists for comparison with the hardened package swordbox/serialize. The holes of the
// paper stay open; comments name each hole by its number in swordbox/HOLES.md. Use it to learn, not
// to keep data.
//
//	client   a flow in two roles: a source of requests, and a connection that can be borrowed
//	entry    the map entry of a request: its client and PSN, and how it was sent
//	word     a memory word in the state cache
//	Machine  holds all of them; implements handler.Machine
package serialize
