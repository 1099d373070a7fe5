// Package paper serialises requests as the SwordBox paper describes it (NSDI 2024 submission, sections 4 and 5): requests of
// many clients move to the connection of one of them, the switch renumbers everything, turns CMP_SWAP and FETCH_ADD into
// WRITEs of the outcome that it knows beforehand, and takes the server's coalesced acknowledgements apart.
//
// It is here to be compared with package hard. What the paper leaves open is left open, each place says which hole it is
// by the number that swordbox/HOLES.md gives it, and nothing is added to make it safe. Use it to learn, not to keep data.
//
//	client   a row, which is two things: a source of requests, and a connection that can be borrowed
//	entry    the map entry of a request: from which client and PSN it came, as what it was sent
//	word     a memory word in the state cache
//	Machine  all of them; implements mode.Machine
package paper
